package testbed

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A gate stands between workers and their nats-server. It passes on all bytes, and plays a [fault] on requests for IDs
// on their way to a worker. All else passes: pings, probes, the loads and messages of workers.
type gate struct {
	target   string
	ns       subjects.Namespace
	listener net.Listener
	answer   *nats.Conn // carries refusals
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
	fault  *fault
}

// A fault is what the gate does with requests for IDs.
type fault struct {
	kind    kind
	refusal *subjects.Error // of a fault that refuses
}

type kind int

const (
	passes  kind = iota
	stalls       // requests wait
	refuses      // requests are answered with an error
	drops        // workers answer, and nobody hears it
)

// nobody is the subject of replies that are dropped.
const nobody = "_natsid_dropped"

// A link is the connection of a worker to the server.
type link struct {
	gate           *gate
	worker, server net.Conn

	mu    sync.Mutex
	out   *bufio.Writer // to the worker
	waits []message     // held back
}

// openGate opens a gate to the server at target, host:port.
func openGate(target string, ns subjects.Namespace) (*gate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no port for the workers: %w", err)
	}
	g := &gate{target: target, ns: ns, listener: l, links: map[*link]struct{}{}, fault: &fault{}}
	g.running.Go(g.accept)
	return g, nil
}

// URL returns the address for workers.
func (g *gate) URL() string { return "nats://" + g.listener.Addr().String() }

// isOwn reports whether a connection of the server comes through the gate, by its port.
func (g *gate) isOwn(port int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.links {
		if a, ok := l.server.LocalAddr().(*net.TCPAddr); ok && a.Port == port {
			return true
		}
	}
	return false
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	_ = g.listener.Close()
	for l := range g.links {
		l.close()
	}
	g.mu.Unlock()
	g.running.Wait()
}

// play begins a fault in place of the one that lasts, and ends it after d; 0 is without end.
func (g *gate) play(f fault, d time.Duration) {
	g.turn(nil, &f)
	if d > 0 {
		time.AfterFunc(d, func() { g.turn(&f, &fault{}) })
	}
}

// turn begins a fault, unless another one than from lasts by now; nil is any.
func (g *gate) turn(from, to *fault) {
	g.mu.Lock()
	if from != nil && g.fault != from {
		g.mu.Unlock()
		return
	}
	g.fault = to
	links := slices.Collect(maps.Keys(g.links))
	g.mu.Unlock()
	for _, l := range links {
		l.release()
	}
}

// now returns the fault that lasts.
func (g *gate) now() *fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fault
}

// accept serves workers until the gate is closed.
func (g *gate) accept() {
	for {
		worker, err := g.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			_ = worker.Close()
			continue
		}
		l := &link{gate: g, worker: worker, server: server, out: bufio.NewWriterSize(worker, 64<<10)}
		g.mu.Lock()
		g.links[l] = struct{}{}
		if g.closed {
			l.close()
		}
		g.mu.Unlock()
		g.running.Go(l.run)
	}
}

// run passes on what both ends send until one hangs up.
func (l *link) run() {
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(l.server, l.worker)
		l.close()
	})
	l.passDown()
	l.close()
	up.Wait()
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	delete(l.gate.links, l)
}

func (l *link) close() {
	_ = l.worker.Close()
	_ = l.server.Close()
}

// passDown passes on what the server sends.
func (l *link) passDown() {
	in := bufio.NewReaderSize(l.server, 64<<10)
	for {
		m, err := read(in)
		if err != nil || l.pass(m, in.Buffered() == 0) != nil {
			return
		}
	}
}

// pass passes a message on, or does with it what the fault says.
func (l *link) pass(m message, flush bool) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.gate.now()
	switch {
	case f.kind == passes || !m.isRequest(l.gate.ns):
		_, err = l.out.Write(m.bytes)
	case f.kind == stalls:
		l.waits = append(l.waits, m)
	case f.kind == refuses:
		_ = l.gate.answer.PublishMsg(&nats.Msg{Subject: m.reply, Header: f.refusal.Headers()}) // it has a reply subject
	case f.kind == drops:
		_, err = l.out.Write(bytes.Replace(m.bytes, []byte(" "+m.reply+" "), []byte(" "+nobody+" "), 1))
	}
	if err == nil && flush {
		err = l.out.Flush()
	}
	return err
}

// release does with the requests that wait what the fault of now says.
func (l *link) release() {
	l.mu.Lock()
	waits := l.waits
	l.waits = nil
	l.mu.Unlock()
	for i, m := range waits {
		if l.pass(m, i == len(waits)-1) != nil {
			return // the link is closed
		}
	}
}

// A message is a line of the server, with the payload that belongs to it.
type message struct {
	bytes   []byte
	subject string // "" for a line that delivers nothing
	reply   string // "" for none
}

// isRequest reports whether the message is a request for IDs. Probes of workers are none.
func (m message) isRequest(ns subjects.Namespace) bool {
	return m.reply != "" && !bytes.Contains(m.bytes, []byte("\n"+subjects.HeaderProbe+":")) &&
		(strings.HasPrefix(m.subject, ns.Segment("")) || strings.HasPrefix(m.subject+".", ns.Snowflake()+"."))
}

// read reads a line of the server: MSG subject sid [reply] size, HMSG subject sid [reply] header size, or another one.
func read(in *bufio.Reader) (m message, err error) {
	if m.bytes, err = in.ReadBytes('\n'); err != nil {
		return m, err
	}
	words := strings.Fields(string(m.bytes))
	least := map[string]int{"MSG": 4, "HMSG": 5}[words[0]] // words of a message without reply subject
	if least == 0 {
		return m, nil
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return m, err
	}
	m.subject = words[1]
	if len(words) > least {
		m.reply = words[3]
	}
	line := len(m.bytes)
	m.bytes = append(m.bytes, make([]byte, size+len("\r\n"))...)
	_, err = io.ReadFull(in, m.bytes[line:])
	return m, err
}
