//go:build linux

package main

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// refuseFor is how long a worker that must be refused is watched.
const refuseFor = 8 * time.Second

// excuse removes a worker from those that must be ready: it must be refused. judgeRefusals checks it when the trial
// ends.
func (c *cluster) excuse(w *worker) {
	c.refused = append(c.refused, w)
	w.Expect() // it may end by itself
}

// mustRefuse watches a worker that must be refused: it must end, or not be ready.
func (c *cluster) mustRefuse(w *worker) {
	c.excuse(w)
	if c.wait(refuseFor, "", func() bool { return !w.Running() || w.ready() }) == nil && w.Running() {
		c.violation("%s is ready, and had to be refused", w.name)
	}
	c.logf("%s: %s", w.name, w.state())
}

// judgeRefusals records the workers that serve and had to be refused.
func (t *trial) judgeRefusals() {
	for _, w := range t.refused {
		t.logf("%s in the end: %s", w.name, w.state())
		if w.ready() {
			t.violation("%s is ready in the end, and had to be refused", w.name)
		}
	}
}

// state describes whether the worker is ready and, if not, its reason.
func (w *worker) state() string {
	if !w.Running() {
		return "ended: " + w.Cmd.ProcessState.String()
	}
	r, err := (&http.Client{Timeout: time.Second}).Get(w.http + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(r.Body, 1000))
	return strings.TrimSpace(r.Status + ": " + strings.ReplaceAll(string(text), "\n", "; "))
}

// raised reports whether a worker has raised an alarm of the kind.
func (c *cluster) raised(kind wire.Alarm) bool {
	c.load.mu.Lock()
	defer c.load.mu.Unlock()
	for _, a := range c.load.alarms {
		if a.Kind == kind {
			return true
		}
	}
	return false
}

// askFor requests IDs of a tag that the load does not use, one at a time, and counts the IDs that a trial gets twice.
// It ignores refusals.
func (c *cluster) askFor(tag string, n int) {
	for range n {
		m, err := c.conn().Request(namespace.Segment(tag), nil, callerWaits)
		if err != nil || refusal(m) != "" {
			continue
		}
		runs, err := subjects.ParseRuns(m.Data)
		c.must(err)
		for _, r := range runs {
			if c.load.asked[r.First] {
				c.load.askedTwice++
			}
			c.load.asked[r.First] = true
		}
	}
}
