package testbed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/tcpproxy"
	"github.com/natsid/natsid/subjects"
)

// A proxy stands between workers and their nats-server. It passes on all bytes, and plays a [fault] on requests for IDs
// on their way to a worker. All else passes: pings, probes, the loads and messages of workers.
type proxy struct {
	*tcpproxy.Proxy
	ns     subjects.Namespace
	answer *nats.Conn            // carries refusals
	fault  atomic.Pointer[fault] // the one that lasts
	links  sync.Map              // of *link, by the port that the server sees
}

// openProxy opens a proxy to the server at target, host:port.
func openProxy(target string, ns subjects.Namespace) (p *proxy, err error) {
	p = &proxy{ns: ns}
	p.fault.Store(new(fault))
	if p.Proxy, err = tcpproxy.Start(target, p.pass); err != nil {
		return nil, fmt.Errorf("no port for the workers: %w", err)
	}
	return p, nil
}

// isOwn reports whether a client of the server comes through the proxy, by its port.
func (p *proxy) isOwn(port int) bool {
	_, ok := p.links.Load(port)
	return ok
}

// A fault is what the proxy does with requests for IDs.
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

// play begins a fault in place of the one that lasts, and ends it after d; 0 is without end.
func (p *proxy) play(f *fault, d time.Duration) {
	p.fault.Store(f)
	p.release()
	if d > 0 {
		time.AfterFunc(d, func() {
			if p.fault.CompareAndSwap(f, new(fault)) { // none has begun since
				p.release()
			}
		})
	}
}

func (p *proxy) release() {
	p.links.Range(func(_, l any) bool {
		l.(*link).release()
		return true
	})
}

// A link is the connection of a worker through the proxy.
type link struct {
	proxy *proxy

	mu    sync.Mutex
	out   *bufio.Writer // to the worker
	waits []message     // held back
}

// pass passes on what a worker and the server send each other until one hangs up.
func (p *proxy) pass(_ context.Context, worker, server *net.TCPConn) {
	l := &link{proxy: p, out: bufio.NewWriterSize(worker, bufferSize)}
	port := server.LocalAddr().(*net.TCPAddr).Port
	p.links.Store(port, l)
	defer p.links.Delete(port)
	var up sync.WaitGroup
	defer up.Wait()
	up.Go(func() {
		_, _ = io.Copy(server, worker)
		_ = server.CloseWrite()
	})
	l.passDown(server)
	_ = worker.Close()
}

const bufferSize = 64 << 10

// passDown passes on what the server sends.
func (l *link) passDown(server io.Reader) {
	in := bufio.NewReaderSize(server, bufferSize)
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
	f := l.proxy.fault.Load()
	switch {
	case f.kind == passes || !m.isRequest(l.proxy.ns):
		_, err = l.out.Write(m.bytes)
	case f.kind == stalls:
		l.waits = append(l.waits, m)
	case f.kind == refuses:
		_ = l.proxy.answer.PublishMsg(&nats.Msg{Subject: m.reply, Header: f.refusal.Headers()}) // fails after the end
	case f.kind == drops:
		_, err = l.out.Write(bytes.Replace(m.bytes, []byte(" "+m.reply+" "), []byte(" "+nobody+" "), 1))
	}
	if err == nil && flush {
		err = l.out.Flush()
	}
	return err
}

// release does with the requests that wait what the fault that lasts says.
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

// isRequest reports whether the message is a request for IDs.
func (m message) isRequest(ns subjects.Namespace) bool {
	return m.reply != "" &&
		(strings.HasPrefix(m.subject, ns.Segment("")) || strings.HasPrefix(m.subject+".", ns.Snowflake()+"."))
}

// read reads a line of the server: MSG subject sid [reply] size, HMSG subject sid [reply] header size, or another one.
func read(in *bufio.Reader) (m message, err error) {
	if m.bytes, err = in.ReadBytes('\n'); err != nil {
		return m, err
	}
	verb, _, _ := strings.Cut(string(m.bytes), " ")
	least := map[string]int{"MSG": 4, "HMSG": 5}[verb] // words of a message without reply subject
	if least == 0 {
		return m, nil
	}
	words := strings.Fields(string(m.bytes))
	size, err := strconv.ParseUint(words[len(words)-1], 10, 31)
	if err != nil {
		return m, err
	}
	m.subject = words[1]
	if len(words) > least {
		m.reply = words[3]
	}
	line := len(m.bytes)
	m.bytes = append(m.bytes, make([]byte, int(size)+len("\r\n"))...)
	_, err = io.ReadFull(in, m.bytes[line:])
	return m, err
}
