package testbed

import (
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A fault is what a [hook] does to requests for IDs.
type fault struct {
	kind    kind
	refusal *subjects.Error // the answer if kind is refuses
}

type kind int

const (
	passes  kind = iota
	stalls       // requests wait
	refuses      // requests are answered with an error
	drops        // workers answer, but the replies are lost
)

// nobody is a subject without subscribers. Replies that must be lost are sent to it.
const nobody = "_natsid_dropped"

// A hook applies a [fault] to requests for IDs before a worker handles them. All other messages pass.
type hook struct {
	ns subjects.Namespace

	mu    sync.Mutex
	fault *fault
	waits []*nats.Msg // requests that are held back
}

// intercept implements [app.Config.Intercept]: it reports whether the worker handles a message.
func (h *hook) intercept(m *nats.Msg) bool {
	if !strings.HasPrefix(m.Subject, h.ns.Segment("")) && !strings.HasPrefix(m.Subject+".", h.ns.Snowflake()+".") {
		return true
	}
	h.mu.Lock()
	f := h.fault
	if f.kind == stalls {
		h.waits = append(h.waits, m)
	}
	h.mu.Unlock()
	switch f.kind {
	case refuses:
		_ = m.RespondMsg(&nats.Msg{Header: f.refusal.Headers()}) // fails if the cluster has stopped
	case drops:
		m.Reply = nobody
	}
	return f.kind == passes || f.kind == drops
}

// play begins a fault in place of the present one, and ends it after d, unless d is 0. Requests that the hook held back
// are sent to workers again.
func (c *Cluster) play(f *fault, d time.Duration) {
	c.hook.mu.Lock()
	waits := c.hook.waits
	c.hook.fault, c.hook.waits = f, nil
	c.hook.mu.Unlock()
	for _, m := range waits {
		again := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: m.Header, Data: m.Data}
		_ = c.conn.PublishMsg(again) // fails if the cluster has stopped
	}
	if d > 0 {
		time.AfterFunc(d, func() {
			c.hook.mu.Lock()
			lasts := c.hook.fault == f // no other fault has begun since
			c.hook.mu.Unlock()
			if lasts {
				c.Resume()
			}
		})
	}
}
