package worker

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// silence is how long no message may reach a group before it is probed, about every probeEvery. In a fleet at rest
// a probe is a message for another worker, which then sends none itself. Tests make both shorter.
var silence, probeEvery = 20 * time.Second, 2 * time.Second

// deafAfter is how many probes in a row must reach nobody at all, not even this worker.
const deafAfter = 5

var errDeaf = errors.New("no message reaches this worker in its queue group: " +
	"check the NATS server that it is connected to, and its routes, or restart this worker")

// A hearing shows whether the NATS server delivers messages of the groups to this worker. Whatever arrives shows that
// it does. Where nothing has arrived for a while the hearing sends a probe to the group, which one of its workers gets.
// A server that answers that there is nobody does not know of this worker's own subscription: the worker is deaf, and
// needs another connection. A probe costs no ID: the grammar of requests refuses it. Where the user may not publish on
// the subjects of requests nothing is probed.
//
// A nil hearing probes nothing. Only the goroutine of the membership uses it, but for why and the replies.
type hearing struct {
	link   *link
	rights *rights
	inbox  string // what the subjects of replies begin with

	mu     sync.Mutex
	groups []*heardGroup
}

// A heardGroup is a group, with the messages that have reached it.
type heardGroup struct {
	*group
	probe     string    // the subject of probes
	heard     int64     // messages at the last look
	since     time.Time // when the last one arrived
	due       time.Time // when it is probed again
	nobody    int       // probes in a row that reached nobody
	isDeaf    bool      // until something arrives
	isRefused bool      // it may not be probed, and that was logged
}

// newHearing returns a hearing; deaf are the modes that heard nothing on the connection before.
func newHearing(l *link, r *rights, deaf []Mode, segments, flakes *group) *hearing {
	if l.Ask == nil {
		return nil
	}
	h := &hearing{link: l, rights: r, inbox: l.conn.NewInbox()}
	for g, probe := range map[*group]string{segments: l.Namespace.SegmentProbe(), flakes: l.Namespace.Snowflake()} {
		c := &heardGroup{group: g, probe: probe, since: time.Now()}
		if slices.Contains(deaf, g.mode) {
			c.isDeaf, c.since = true, time.Time{}
		}
		h.groups = append(h.groups, c)
		r.claim(probe)
	}
	return h
}

// reply takes note of the answer to a probe.
func (h *hearing) reply(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.groups {
		switch {
		case !strings.HasSuffix(m.Subject, "."+string(c.mode)):
		case m.Header.Get("Status") == "503":
			c.nobody++
		default: // another worker got it, or this one
			h.hears(c, time.Now())
		}
	}
}

// hears notes that messages of a group arrive. The lock is held.
func (h *hearing) hears(c *heardGroup, now time.Time) {
	c.since, c.nobody = now, 0
	if c.isDeaf {
		c.isDeaf = false
		h.link.Log.Info("messages arrive again", "mode", c.mode)
	}
}

// follow probes the groups that are silent, and reports whether one is found to be deaf.
func (h *hearing) follow() (deaf bool) {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.groups {
		deaf = h.followOne(c, time.Now()) || deaf
	}
	return deaf
}

func (h *hearing) followOne(c *heardGroup, now time.Time) (deaf bool) {
	heard := c.arrived()
	switch {
	case !c.stands():
		c.since, c.nobody = now, 0
	case heard != c.heard:
		h.hears(c, now)
	case now.Sub(c.since) >= silence && !now.Before(c.due) && h.mayProbe(c):
		c.due = now.Add(jittered(probeEvery))
		m := nats.NewMsg(c.probe)
		m.Reply, m.Data = h.inbox+"."+string(c.mode), []byte(subjects.ProbeBody)
		m.Header.Set(subjects.HeaderProbe, "1")
		_ = h.link.conn.PublishMsg(m) // the next one may be sent
	}
	c.heard = heard
	if c.nobody < deafAfter {
		return false
	}
	c.isDeaf, c.nobody = true, 0
	h.link.Log.Warn("not ready: connecting again", "mode", c.mode, "reason", errDeaf)
	return true
}

// mayProbe reports whether a group may be probed. It logs once that it may not.
func (h *hearing) mayProbe(c *heardGroup) bool {
	may := h.rights.mayPublish(c.probe)
	if !may && !c.isRefused {
		h.link.Log.Warn("the NATS server does not let this worker probe whether messages reach it, so that only "+
			"requests show it: give its user the right to publish on `"+anyToken(c.probe)+"`", "group", c.mode)
	}
	c.isRefused = !may
	return may
}

// why returns why a mode is not ready, or nil. It is safe for concurrent use.
func (h *hearing) why(mode Mode) error {
	if slices.Contains(h.deaf(), mode) {
		return errDeaf
	}
	return nil
}

// deaf returns the modes that hear nothing. It is safe for concurrent use.
func (h *hearing) deaf() (modes []Mode) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.groups {
		if c.isDeaf {
			modes = append(modes, c.mode)
		}
	}
	return modes
}
