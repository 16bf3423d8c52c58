// Package freeport finds ports for servers that tests and the faults command start.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

// The ports are below those that systems give to outgoing connections and to
// listeners on port 0 (from 32768 on Linux, 49152 elsewhere), which would take them
// in the meantime.
const low, high = 12_000, 32_000

// Each process tries the ports in an order of its own, so that several processes do
// not try the same ones at the same time. A stride that has no factor in common with
// 20,000 reaches all of them.
var (
	stride = 10*rand.Int32N((high-low)/10) + []int32{1, 3, 7, 9}[rand.IntN(4)]
	last   = func() *atomic.Int32 {
		p := new(atomic.Int32)
		p.Store(rand.Int32N(high - low))
		return p
	}()
)

// Get returns an address on loopback, 127.0.0.1:port, on which nothing listens and
// which it has not returned before, for 20,000 calls. It is safe for concurrent use.
func Get() (string, error) {
	for range high - low {
		port := low + uint32(last.Add(stride))%(high-low) // it may wrap around
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // it is taken
		}
		return l.Addr().String(), l.Close()
	}
	return "", errors.New("freeport: no port is free")
}
