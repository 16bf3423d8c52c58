package freeport_test

import (
	"net"
	"testing"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

func TestEachAddressCanBeListenedOnAndIsGivenOnce(t *testing.T) {
	seen := make(map[string]bool)
	for range 2000 {
		addr, err := freeport.Get()
		if err != nil || seen[addr] {
			t.Fatalf("%s, %v, given before: %v", addr, err, seen[addr])
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
