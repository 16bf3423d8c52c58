package rig

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A Desk answers the requests of a namespace in the place of workers, when and how a scenario says. It issues each ID
// once and keeps who got it. Its methods are safe for concurrent use.
type Desk struct {
	nc *nats.Conn
	ns subjects.Namespace

	mu     sync.Mutex
	sub    *nats.Subscription
	last   subjects.ID // ID that was issued
	policy Policy
	seen   []*Request
	news   chan struct{} // closed when a request arrives
}

// A Request is a copy of a request that has arrived at the desk.
type Request struct {
	desk    *Desk
	Nth     int // from 1, of those with the same subject and body
	Subject string
	Body    string
	N       int // IDs requested
	Header  nats.Header
	At      time.Time // a moment after it was sent
	msg     *nats.Msg
	runs    []subjects.Run // guarded by the desk's lock
}

// A Policy answers a request, or does not.
type Policy func(*Request)

// Issue answers each request with IDs.
func Issue(r *Request) { r.Issue() }

// Silence answers none.
func Silence(*Request) {}

// OpenDesk opens a desk that issues, for all requests of a namespace.
func OpenDesk(nc *nats.Conn, ns string) (*Desk, error) {
	d := &Desk{nc: nc, ns: subjects.Namespace(ns), policy: Issue, news: make(chan struct{})}
	return d, d.Open()
}

// Open makes NATS deliver requests to the desk, and returns when it does.
func (d *Desk) Open() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sub == nil {
		if d.sub, err = d.nc.QueueSubscribe(string(d.ns)+".>", wire.QueueGroup, d.receive); err != nil {
			return err
		}
	}
	return d.nc.Flush()
}

// Close makes NATS report that nobody serves the namespace.
func (d *Desk) Close() error {
	d.mu.Lock()
	sub := d.sub
	d.sub = nil
	d.mu.Unlock()
	if sub == nil {
		return nil
	}
	if err := sub.Unsubscribe(); err != nil {
		return err
	}
	return d.nc.Flush()
}

// Say changes how the desk answers from now on.
func (d *Desk) Say(p Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy = p
}

func (d *Desk) receive(m *nats.Msg) {
	r := &Request{desk: d, Subject: m.Subject, Body: string(m.Data), N: 1, Header: m.Header, At: time.Now(), msg: m}
	if n, err := strconv.Atoi(r.Body); err == nil {
		r.N = n
	}
	d.mu.Lock()
	r.Nth = 1
	for _, other := range d.seen {
		if other.Subject == r.Subject && other.Body == r.Body {
			r.Nth++
		}
	}
	d.seen = append(d.seen, r)
	policy := d.policy
	close(d.news)
	d.news = make(chan struct{})
	d.mu.Unlock()
	policy(r)
}

// Seen returns the requests that have arrived.
func (d *Desk) Seen() []*Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*Request(nil), d.seen...)
}

// Of returns the requests of a kind that have arrived.
func (d *Desk) Of(kind string) (all []*Request) {
	for _, r := range d.Seen() {
		if r.Kind() == kind {
			all = append(all, r)
		}
	}
	return all
}

// News returns a channel that is closed when the next request arrives.
func (d *Desk) News() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// Origin returns the request in whose answer an ID was, or nil.
func (d *Desk) Origin(id subjects.ID) *Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.seen {
		for _, run := range r.runs {
			if run.First <= id && id <= run.Last {
				return r
			}
		}
	}
	return nil
}

// take reserves n IDs for a request.
func (d *Desk) take(r *Request, n int) subjects.Run {
	d.mu.Lock()
	defer d.mu.Unlock()
	run := subjects.Run{First: d.last + 1, Last: d.last + subjects.ID(n)}
	d.last = run.Last
	r.runs = append(r.runs, run)
	return run
}

// Issue answers with as many new IDs as were requested.
func (r *Request) Issue() { r.Answer(r.desk.take(r, r.N).String()) }

// IssueOnly answers with n new IDs.
func (r *Request) IssueOnly(n int) { r.Answer(r.desk.take(r, n).String()) }

// Answer answers with a body.
func (r *Request) Answer(body string) { r.respond(&nats.Msg{Data: []byte(body)}) }

// Refuse answers as a worker that refuses. The headers of more are added.
func (r *Request) Refuse(code subjects.Code, text string, more ...string) {
	header := nats.Header(subjects.Errorf(code, "%s", text).Headers())
	for i := 0; i < len(more); i += 2 {
		header.Set(more[i], more[i+1])
	}
	r.respond(&nats.Msg{Header: header})
}

// Reply answers with headers and a body.
func (r *Request) Reply(headers map[string]string, body string) {
	m := &nats.Msg{Header: nats.Header{}, Data: []byte(body)}
	for k, v := range headers {
		m.Header.Set(k, v)
	}
	r.respond(m)
}

// respond fails only if the server has gone, which the scenario then notices.
func (r *Request) respond(m *nats.Msg) {
	m.Subject = r.msg.Reply
	if len(m.Header) == 0 {
		m.Header = nil
	}
	_ = r.desk.nc.PublishMsg(m)
}

// Kind returns the subject without its namespace: segment.order.
func (r *Request) Kind() string { return strings.TrimPrefix(r.Subject, string(r.desk.ns)+".") }

// String returns the request as a scenario's text names it.
func (r *Request) String() string {
	return fmt.Sprintf("request %d on %s %q", r.Nth, r.Subject, r.Body)
}
