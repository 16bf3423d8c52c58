package testbed

import (
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A fault is what happens to requests for IDs.
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

// A hook plays a [fault] on requests for IDs before a worker handles them. All else passes.
type hook struct {
	ns subjects.Namespace

	mu    sync.Mutex
	fault *fault
	waits []*nats.Msg // held back
}

// intercept reports whether a worker is to handle a message.
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
		_ = m.RespondMsg(&nats.Msg{Header: f.refusal.Headers()}) // fails after the end
	case drops:
		m.Reply = nobody
	}
	return f.kind == passes || f.kind == drops
}

// play begins a fault in place of the one that lasts, and ends it after d; 0 is without end. Requests that wait are
// sent to workers again.
func (c *Cluster) play(f *fault, d time.Duration) {
	c.hook.mu.Lock()
	waits := c.hook.waits
	c.hook.fault, c.hook.waits = f, nil
	c.hook.mu.Unlock()
	for _, m := range waits {
		again := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: m.Header, Data: m.Data}
		_ = c.conn.PublishMsg(again) // fails after the end
	}
	if d > 0 {
		time.AfterFunc(d, func() {
			c.hook.mu.Lock()
			lasts := c.hook.fault == f // none has begun since
			c.hook.mu.Unlock()
			if lasts {
				c.Resume()
			}
		})
	}
}
