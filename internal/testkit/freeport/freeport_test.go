package freeport_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// Two processes that reserve 1,000 of the 20,000 ports each share about 50,
// unless each sees what the other has.
func TestAnAddressIsGivenToOneProcess(t *testing.T) {
	const each = 1000
	if os.Getenv("FREEPORT_CHILD") != "" {
		for range each {
			addr, err := freeport.Get()
			if err != nil {
				t.Fatal(err)
			}
			os.Stdout.WriteString("reserved " + addr + "\n")
		}
		return
	}
	mine := make(map[string]bool)
	for range each {
		addr, err := freeport.Get()
		if err != nil {
			t.Fatal(err)
		}
		mine[addr] = true
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "FREEPORT_CHILD=1")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	theirs := 0
	for line := range strings.Lines(string(out)) {
		addr, ok := strings.CutPrefix(strings.TrimSpace(line), "reserved ")
		if !ok {
			continue
		}
		theirs++
		if mine[addr] {
			t.Errorf("%s is reserved by both processes", addr)
		}
	}
	if theirs != each {
		t.Errorf("the other process reserved %d ports, want %d: %s", theirs, each, out)
	}
}
