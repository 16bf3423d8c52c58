package worker

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A pace is how fast evidence is gathered.
type pace struct {
	// probeAfter is how long a channel is silent before it is probed, about every
	// probeEvery. askAfter is how long before others are asked what they hear, and
	// all goes faster, about every askEvery. Under load nothing is sent. In a fleet at
	// rest a probe is evidence for another worker, which then sends none itself.
	probeAfter, probeEvery time.Duration
	askAfter, askEvery     time.Duration
	// silence is how long nothing may arrive before that can be trouble.
	silence time.Duration
}

var usualPace = pace{
	probeAfter: 5 * time.Second, probeEvery: 2 * time.Second,
	askAfter: 10 * time.Second, askEvery: 500 * time.Millisecond,
	silence: 20 * time.Second,
}

const (
	// enough is how many messages the others must have heard each, on average, in
	// the time that this worker heard none. That is chance once in 22,000 times,
	// and twice in a row, after it has subscribed anew, once in 500 million.
	enough = 10
	// enoughNobody is how many probes must have found nobody at all, not even this
	// worker.
	enoughNobody = 5
)

// A channel is a group's subjects on which messages should arrive. What arrives is
// evidence that the NATS servers route to this worker.
type channel struct {
	name    string
	probe   string       // the subject of its probes
	heard   func() int64 // messages that ever arrived
	stands  func() bool  // whether the server has taken its subscriptions
	anew    func()       // subscribes anew
	window  [20]int64    // heard at the end of each part of the last silence
	since   time.Time    // since when nothing has arrived; zero while it does not stand
	last    int64        // heard at since
	others  float64      // messages that others heard in the last 20 s, a sum over answers
	answers int          // of others since then
	nobody  int          // probes since then that found nobody
	strikes int          // times that it was found lost since something arrived
	refused bool         // it may not be probed, and that was said
}

// hear notes what has arrived until now.
func (c *channel) hear(now time.Time, p pace) {
	heard, stands := c.heard(), c.stands()
	c.window[p.part(now)] = heard
	switch {
	case !stands:
		c.since = time.Time{}
	case heard != c.last || c.since.IsZero():
		c.restart(now)
		c.strikes = 0
	}
	c.last = heard
}

// restart begins another silence.
func (c *channel) restart(now time.Time) { c.since, c.others, c.answers, c.nobody = now, 0, 0, 0 }

// patience returns how seldom an evidence may be looked at, at most as seldom as given: no
// part of a window must be missed.
func (e *evidence) patience(most time.Duration) time.Duration {
	if e == nil {
		return most
	}
	return min(most, e.pace.silence/time.Duration(2*len(channel{}.window)))
}

// part returns which part of the window now is in.
func (p pace) part(now time.Time) int {
	const parts = len(channel{}.window)
	return int(now.UnixNano() / (int64(p.silence) / int64(parts)) % int64(parts))
}

// lately returns how many messages arrived in the time of a silence until now.
func (c *channel) lately(now time.Time, p pace) int64 {
	return c.last - c.window[(p.part(now)+1)%len(c.window)]
}

// silent returns how long nothing has arrived.
func (c *channel) silent(now time.Time) time.Duration {
	if c.since.IsZero() {
		return 0
	}
	return now.Sub(c.since)
}

// lost reports whether messages should have arrived.
func (c *channel) lost(now time.Time, p pace) bool {
	long := c.silent(now)
	if long < p.silence {
		return false
	}
	expected := c.others / float64(max(1, c.answers)) * float64(long) / float64(p.silence)
	return expected >= enough || c.nobody >= enoughNobody
}

// An evidence shows that the queue group delivers to this worker, for as long as
// it runs. Whatever arrives is evidence. Where nothing has arrived for a while it
// sends a probe to the group, which one of its workers gets, this one or another;
// and it asks one worker of the group what that one hears. Where others hear and
// this one does not, it subscribes anew; if that does not help it says so.
//
// A probe costs no ID: it is refused by the grammar of requests. Where the user
// may not publish on the subjects of requests, these are not probed, and what the
// others hear of requests is the nearest evidence.
//
// A nil evidence is one that needs none. Only the goroutine of [Worker.Run] uses
// it, but for trouble and the replies.
type evidence struct {
	cfg    *Config
	rights *rights
	pace   pace
	ask    string // the subject of questions to the group
	inbox  string
	subs   []*nats.Subscription

	mu         sync.Mutex
	channels   map[string]*channel
	asked      int64     // questions that arrived
	looked     time.Time // when follow was called last
	due        time.Time // the next probe
	reconnects uint64
	trouble    map[string]error
}

// heardLately is the answer to a question what a worker hears.
type heardLately struct {
	From  string           `json:"from"`  // the inbox of the one that answers
	Heard map[string]int64 `json:"heard"` // messages lately, by channel
}

func newEvidence(cfg *Config, r *rights, segments, flakes *group) *evidence {
	if cfg.Ask == nil {
		return nil
	}
	ns := cfg.Namespace
	e := &evidence{
		cfg: cfg, rights: r, pace: usualPace, ask: ns.Probe(""), inbox: cfg.Conn.NewInbox(),
		trouble: map[string]error{},
	}
	e.channels = map[string]*channel{
		"group": {
			name: "group", probe: e.ask, anew: e.subscribe, heard: func() int64 { return e.asked },
			stands: func() bool { return len(e.subs) > 0 && r.subscription(e.ask) == "" },
		},
	}
	for g, probe := range map[*group]string{segments: ns.SegmentProbe(), flakes: ns.Snowflake()} {
		e.channels[string(g.mode)] = &channel{
			name: string(g.mode), probe: probe, heard: g.arrived, stands: g.stands, anew: g.anew,
		}
		r.claim(probe)
	}
	return e
}

// subscribe joins the group of those that are asked, or joins it anew.
func (e *evidence) subscribe() {
	e.leave()
	e.rights.claim(e.ask)
	replies, err := e.cfg.Conn.Subscribe(e.inbox+".*", e.reply)
	if err != nil {
		return // not connected: tried again
	}
	e.subs = append(e.subs, replies)
	if asked, err := e.cfg.Conn.QueueSubscribe(e.ask, subjects.QueueGroup, e.answer); err == nil {
		e.subs = append(e.subs, asked)
	}
}

func (e *evidence) leave() {
	if e == nil {
		return
	}
	drain(e.cfg, e.subs)
	e.subs = nil
}

// answer answers a question.
func (e *evidence) answer(m *nats.Msg) {
	now := time.Now()
	e.mu.Lock()
	e.asked++
	a := heardLately{From: e.inbox, Heard: map[string]int64{}}
	for name, c := range e.channels {
		a.Heard[name] = c.lately(now, e.pace)
	}
	e.mu.Unlock()
	if body, err := json.Marshal(a); err == nil {
		_ = m.Respond(body)
	}
}

// reply takes note of the answer to a question or a probe.
func (e *evidence) reply(m *nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	var a heardLately
	switch c := e.channels[name]; {
	case c == nil:
	case m.Header.Get("Status") == "503":
		c.nobody++
	case json.Unmarshal(m.Data, &a) == nil && a.From != "" && a.From != e.inbox:
		for name, c := range e.channels {
			c.others += float64(a.Heard[name])
			c.answers++
		}
	}
}

// follow looks at what has arrived, and probes what is silent.
func (e *evidence) follow() {
	if e == nil {
		return
	}
	if e.subs == nil {
		e.subscribe()
	}
	now := time.Now()
	for _, c := range e.hear(now) {
		c.anew()
	}
	if now.Before(e.due) || !e.cfg.Conn.IsConnected() {
		return
	}
	e.sayRefused()
	probes, every := e.silent(now)
	e.due = now.Add(time.Duration(float64(every) * (0.75 + rand.Float64()/2)))
	for _, subject := range probes {
		m := nats.NewMsg(subject[1])
		m.Reply, m.Data = e.inbox+"."+subject[0], []byte(subjects.ProbeBody)
		m.Header.Set(subjects.HeaderProbe, "1")
		_ = e.cfg.Conn.PublishMsg(m) // the next one may be sent
	}
}

// sayRefused says once of each channel that it cannot be probed.
func (e *evidence) sayRefused() {
	for _, c := range e.channels {
		if c.refused == e.rights.mayPublish(c.probe) {
			c.refused = !c.refused
			if c.refused {
				e.cfg.Log.Warn("the NATS server does not let this worker probe whether messages reach it, so that "+
					"only requests show it: give its user the right to publish on `"+anyToken(c.probe)+"`",
					"group", c.name)
			}
		}
	}
}

// hear notes what has arrived, and returns the channels that must be subscribed to
// anew.
func (e *evidence) hear(now time.Time) (lost []*channel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// A process that stood still, or was disconnected, knows nothing of that time.
	stood := now.Sub(e.looked) > e.pace.probeAfter
	if n := e.cfg.Conn.Stats().Reconnects; n != e.reconnects || !e.cfg.Conn.IsConnected() {
		e.reconnects, stood = n, true
	}
	e.looked = now
	for _, c := range e.channels {
		c.hear(now, e.pace)
		if stood && !c.since.IsZero() {
			c.restart(now)
		}
		if c.lost(now, e.pace) {
			c.strikes++
			c.restart(now)
			lost = append(lost, c)
			e.cfg.Log.Warn("no message arrives, while others receive theirs; subscribing anew", "group", c.name)
		}
	}
	for mode, c := range e.channels {
		if c.probe == e.ask {
			continue // no mode
		}
		nearest := c
		if c.strikes == 0 && c.silent(now) >= e.pace.silence && !e.rights.mayPublish(c.probe) {
			nearest = e.channels["group"]
		}
		e.note(mode, nearest.strikes > 1)
	}
	return lost
}

// note notes whether nothing reaches a mode. Its changes are logged. The lock is held.
func (e *evidence) note(mode string, deaf bool) {
	if was := e.trouble[mode] != nil; was == deaf {
		return
	}
	if !deaf {
		delete(e.trouble, mode)
		e.cfg.Log.Info("messages arrive again", "mode", mode)
		return
	}
	e.trouble[mode] = errUnheard
	e.cfg.Log.Warn("not ready", "mode", mode, "reason", errUnheard)
}

// silent returns names and subjects of what is to be probed, and when to look
// again.
func (e *evidence) silent(now time.Time) (probes [][2]string, every time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ask := false
	for _, c := range e.channels {
		if c.probe == e.ask || c.since.IsZero() {
			continue
		}
		if c.silent(now) >= e.pace.probeAfter && e.rights.mayPublish(c.probe) {
			probes = append(probes, [2]string{c.name, c.probe})
		}
		ask = ask || c.silent(now) >= e.pace.askAfter
	}
	if !ask {
		return probes, e.pace.probeEvery
	}
	if group := e.channels["group"]; group.silent(now) >= e.pace.probeAfter && e.rights.mayPublish(e.ask) {
		probes = append(probes, [2]string{group.name, group.probe})
	}
	return probes, e.pace.askEvery
}

var errUnheard = errors.New("no message reaches this worker in its queue group, though others receive theirs: " +
	"check the NATS server that it is connected to, and its routes, or restart this worker")

// why returns why a mode is not ready, or nil. It is safe for concurrent use.
func (e *evidence) why(mode Mode) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trouble[string(mode)]
}
