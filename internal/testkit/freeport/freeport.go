// Package freeport reserves ports for servers that tests and the faults command start, stop and start again.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports are below those that systems give to outgoing connections and to listeners on port 0 (from 32768 on Linux,
// 49152 elsewhere), which would take them in the meantime.
const low, high = 12_000, 32_000

// reserved holds a UDP socket on each port that Get returned. Get takes no port whose UDP side is bound, so a port
// belongs to one process until that ends, and a server can be started on it again.
var reserved struct {
	sync.Mutex
	sockets []net.PacketConn
}

// Get returns an address on loopback, 127.0.0.1:port, on which no TCP listener is bound. No other call of Get returns
// it, in any process on this machine, until this process ends. It is safe for concurrent use.
func Get() (string, error) {
	for range 10 * (high - low) {
		addr := fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low))
		u, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue // it is reserved
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			_ = u.Close() // another program has it
			continue
		}
		reserved.Lock()
		reserved.sockets = append(reserved.sockets, u)
		reserved.Unlock()
		return addr, l.Close()
	}
	return "", errors.New("freeport: no port is free")
}
