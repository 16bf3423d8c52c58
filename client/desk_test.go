package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A desk answers the requests for one tag, when and how a test says.
type desk struct {
	t *testing.T

	mu    sync.Mutex
	last  int64                                 // ID that was issued
	reply func(number, n int, m *nats.Msg) bool // reports whether it has answered; nil: issue
	asked []int                                 // how many IDs each request was for
	held  []*nats.Msg                           // without an answer
}

// openDesk opens a desk for the tag order. It issues until the test says otherwise.
func openDesk(t *testing.T, nc *nats.Conn) *desk {
	d := &desk{t: t}
	respond(t, nc, "id.segment.order", d.receive)
	return d
}

func (d *desk) receive(m *nats.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := count(m)
	d.asked = append(d.asked, n)
	switch {
	case d.reply == nil:
		d.issue(m)
	case !d.reply(len(d.asked), n, m):
		d.held = append(d.held, m)
	}
}

// count returns how many IDs a request is for.
func count(m *nats.Msg) int {
	n, err := strconv.Atoi(string(m.Data))
	if err != nil {
		return 1
	}
	return n
}

// issue answers with IDs that were never issued. d.mu is held.
func (d *desk) issue(m *nats.Msg) {
	first := d.last + 1
	d.last += int64(count(m))
	body := fmt.Sprintf("%d-%d", first, d.last)
	if first == d.last {
		body = strconv.FormatInt(first, 10)
	}
	answer(d.t, m, body)
}

// say changes how the desk answers. f is called with the number of the request, and
// how many IDs it is for. It reports whether it has answered; nil issues.
func (d *desk) say(f func(number, n int, m *nats.Msg) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reply = f
}

// hold answers nothing.
func hold(int, int, *nats.Msg) bool { return false }

// issueHeld issues to every request without an answer, and to later ones.
func (d *desk) issueHeld() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reply = nil
	for _, m := range d.held {
		d.issue(m)
	}
	d.held = nil
}

// requests returns how many IDs each request was for.
func (d *desk) requests() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.asked...)
}

// refuseWith refuses with a code and a further header.
func refuseWith(t *testing.T, m *nats.Msg, code subjects.Code, header, value string) {
	reply := nats.NewMsg(m.Reply)
	reply.Header = nats.Header(subjects.Errorf(code, "because").Headers())
	reply.Header.Set(header, value)
	if err := m.RespondMsg(reply); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
}

// A result is the result of a call.
type result struct {
	id  subjects.ID
	err error
}

// start begins calls of Next, whose results come through the channel.
func start(ctx context.Context, h *client.Handle, calls int) <-chan result {
	results := make(chan result, calls)
	for range calls {
		go func() {
			id, err := h.Next(ctx)
			results <- result{id, err}
		}()
	}
	return results
}

// gather begins calls that gather in one batch, since four others are under way, which
// the desk holds.
func gather(ctx context.Context, t *testing.T, d *desk, h *client.Handle, calls int) (first, gathered <-chan result) {
	t.Helper()
	d.say(hold)
	all, before := make(chan result, 4), h.Stats().Requests
	for i := range int64(4) {
		go func() { all <- <-start(ctx, h, 1) }()
		wait.Until(t, "a request for each call is sent", func() bool { return h.Stats().Requests > before+i })
	}
	gathered = start(ctx, h, calls)
	wait.Until(t, "all calls wait", func() bool { return h.Gathered() == int64(calls) })
	return all, gathered
}

// collect returns the IDs of calls, none of which may fail.
func collect(t *testing.T, results <-chan result, calls int) []subjects.ID {
	t.Helper()
	var ids []subjects.ID
	for range calls {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		ids = append(ids, r.id)
	}
	return ids
}

// once fails the test if an ID is there twice.
func once(t *testing.T, ids ...[]subjects.ID) {
	t.Helper()
	seen := make(map[subjects.ID]bool)
	for _, list := range ids {
		for _, id := range list {
			if seen[id] || id <= 0 {
				t.Fatalf("ID %d twice, or of no reply", id)
			}
			seen[id] = true
		}
	}
}
