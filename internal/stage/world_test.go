package stage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/stamp"
	"github.com/natsid/natsid/subjects"
)

// A world is a source and a target in virtual time. Writes are lost, late or doubled, and
// acknowledgements lost, as a seed decides. Its methods are safe for concurrent use.
type world struct {
	t *testing.T

	mu      sync.Mutex
	rand    *rand.Rand
	calm    bool // nothing is lost any more
	created time.Time
	source  []kind        // message i has sequence i+1, and its index as data
	first   uint64        // of the source
	shift   time.Duration // of the times of messages
	term    int           // of the source's leader
	seen    uint64        // the last message that the leader has, until behind has passed
	behind  time.Time
	letters map[uint64]bool
	target  []*nats.Msg
	gone    bool // the target's messages have expired
	hint    stage.Hint
	lastID  int64
	writes  int

	// The reader passes over message skip, and then the source begins with firstThen.
	skip, firstThen uint64
}

var errLost = errors.New("no answer")

// A kind is the kind of a message in the source.
type kind int

const (
	plain   kind = iota
	foreign      // no filter selects it
	dead         // it cannot be copied
	kinds
)

// A fate is the outcome of a write.
type fate int

const (
	well    fate = iota
	lost         // it never arrives
	unheard      // it arrives, and its acknowledgement does not
	late         // it arrives after its writer has given up
	doubled      // it arrives now and again later
	fates
)

func (w *world) draw() fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.calm || w.rand.IntN(3) > 0 {
		return well
	}
	return fate(w.rand.IntN(int(fates)))
}

func (w *world) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// chance returns true once in n.
func (w *world) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.rand.IntN(n) == 0
}

// upTo returns a random time.
func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rand.Int64N(int64(d)))
}

func (w *world) publish(kinds ...kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.source = append(w.source, kinds...)
}

// draws returns kinds of messages: runs of one, mostly.
func (w *world) draws(n int) (drawn []kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(drawn) < n {
		k := plain
		if w.rand.IntN(3) == 0 {
			k = kind(w.rand.IntN(int(kinds)))
		}
		for range 1 + w.rand.IntN(10) {
			drawn = append(drawn, k)
		}
	}
	return drawn[:n]
}

// heldLocked returns the last message that the leader of the source has. At times another leader is elected, which
// lacks the latest messages for some time.
func (w *world) heldLocked() uint64 {
	all := uint64(len(w.source))
	if !w.calm && w.rand.IntN(60) == 0 {
		w.term++
		w.seen = all - min(all, w.rand.Uint64N(20))
		w.behind = time.Now().Add(time.Duration(w.rand.Int64N(int64(3 * time.Second))))
	}
	if time.Now().Before(w.behind) {
		return min(all, w.seen)
	}
	return all
}

func (w *world) timeOf(seq uint64) time.Time {
	return w.created.Add(w.shift + time.Duration(seq)*time.Millisecond)
}

// TimeOf implements [stage.Source].
func (w *world) TimeOf(_ context.Context, seq uint64) (time.Time, error) {
	if w.chance(20) {
		return time.Time{}, errLost
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq < w.first || seq > w.heldLocked() {
		return time.Time{}, nil
	}
	return w.timeOf(seq), nil
}

// end returns the last message that is to be read.
func (w *world) end() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := w.heldLocked(); i > 0 && i >= w.first; i-- {
		if w.source[i-1] != foreign {
			return i
		}
	}
	return 0
}

// State implements [stage.Source].
func (w *world) State(context.Context) (stage.SourceState, error) {
	time.Sleep(w.upTo(20 * time.Millisecond))
	if w.chance(20) {
		return stage.SourceState{}, errLost
	}
	w.mu.Lock()
	last := w.heldLocked()
	s := stage.SourceState{Created: w.created, First: min(w.first, last+1), Last: last, LastTime: w.timeOf(last),
		Leader: fmt.Sprint(w.term)}
	w.mu.Unlock()
	time.Sleep(w.upTo(20 * time.Millisecond))
	s.End = w.end()
	return s, nil
}

// Before implements [stage.Source].
func (w *world) Before(context.Context, time.Time) (uint64, error) { return 0, errors.ErrUnsupported }

// Open implements [stage.Source].
func (w *world) Open(_ context.Context, after uint64) (stage.Reader, error) {
	if w.chance(20) {
		return nil, errLost
	}
	return &reader{w: w, last: after}, nil
}

type reader struct {
	w       *world
	last    uint64
	stalled time.Time // until then it delivers nothing
}

func (r *reader) Next(ctx context.Context) (stage.Message, error) {
	for {
		if r.w.chance(200) {
			return stage.Message{}, errLost
		}
		if r.w.chance(300) {
			r.stalled = time.Now().Add(r.w.upTo(10 * time.Second))
		}
		if wait := time.Until(r.stalled); wait > 0 {
			select {
			case <-ctx.Done():
				return stage.Message{}, context.Cause(ctx)
			case <-time.After(wait):
			}
		}
		r.w.mu.Lock()
		if m, ok := r.deliverLocked(); ok {
			r.w.mu.Unlock()
			return m, nil
		}
		r.w.mu.Unlock()
		select {
		case <-ctx.Done():
			return stage.Message{}, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *reader) deliverLocked() (stage.Message, bool) {
	for {
		next := max(r.last+1, r.w.first)
		if next > uint64(len(r.w.source)) {
			return stage.Message{}, false
		}
		if r.last = next; r.last == r.w.skip {
			r.w.source[r.last-1] = foreign // it is not missed
			r.w.first = r.w.firstThen
			continue
		}
		m := stage.Message{Seq: r.last, Time: r.w.timeOf(r.last), Subject: "orders",
			Data: []byte(strconv.FormatUint(r.last, 10)), Header: nats.Header{nats.MsgIdHdr: {"m"}}}
		switch r.w.source[r.last-1] {
		case foreign:
			continue
		case dead:
			m.Subject = "dead"
		}
		for _, k := range r.w.source[r.last:] {
			if k != foreign {
				m.Pending++
			}
		}
		return m, true
	}
}

func (r *reader) Close() {}

// letters are the dead letters, as [stage.DeadLetters].
type letters struct{ w *world }

func (l letters) Largest() int { return 1 << 20 }

func (l letters) Check(context.Context) error {
	if l.w.chance(20) {
		return errLost
	}
	return nil
}

// Keep is lost at times, and at times its answer is.
func (l letters) Keep(_ context.Context, m *nats.Msg) error {
	time.Sleep(l.w.upTo(10 * time.Millisecond))
	if l.w.chance(10) {
		return errLost
	}
	p, err := stage.ParsePosition(m.Header.Get(stage.SourceHeader))
	if err != nil || m.Header.Get(stage.ReasonHeader) != string(stage.NoSubject) {
		l.w.t.Errorf("a dead letter has headers %v", m.Header)
	}
	l.w.mu.Lock()
	l.w.letters[p.Seq] = true
	l.w.mu.Unlock()
	if l.w.chance(10) {
		return errLost
	}
	return nil
}

// allBefore checks that the messages before a position are in the target, kept or foreign.
func (w *world) allBeforeLocked(seq uint64) {
	copied := make(map[uint64]bool)
	for _, m := range w.target {
		p, _ := stage.ParsePosition(m.Header.Get(stage.SourceHeader))
		copied[p.Seq] = true
	}
	for i, k := range w.source[:seq] {
		at := uint64(i + 1)
		if k == plain && !copied[at] || k == dead && !w.letters[at] {
			w.t.Errorf("message %d of kind %d is before the position %d, and was neither copied nor kept", at, k, seq)
			return
		}
	}
}

// to is the target, as a [stage.Target].
type to struct{ w *world }

func (t to) State(context.Context) (stage.TargetState, error) {
	time.Sleep(t.w.upTo(20 * time.Millisecond))
	if t.w.chance(20) {
		return stage.TargetState{}, errLost
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	s := stage.TargetState{Created: t.w.created, Last: uint64(len(t.w.target)), Expired: t.w.gone}
	if s.Last > 0 && !s.Expired {
		s.Header = t.w.target[s.Last-1].Header
	}
	return s, nil
}

func (t to) Header(_ context.Context, seq uint64) (nats.Header, bool, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	return t.w.target[seq-1].Header, !t.w.gone, nil
}

// Prepare does nothing: its messages land with Write alone.
func (t to) Prepare([]*nats.Msg, uint64) error { return nil }

func (t to) Write(_ context.Context, msgs []*nats.Msg, last uint64) error {
	time.Sleep(t.w.upTo(20 * time.Millisecond))
	later := func() {
		d := t.w.upTo(20 * time.Second)
		go func() { time.Sleep(d); _ = t.w.land(msgs, last) }()
	}
	switch t.w.draw() {
	case lost:
		time.Sleep(5 * time.Second)
		return errLost
	case unheard:
		_ = t.w.land(msgs, last)
		time.Sleep(5 * time.Second)
		return errLost
	case late:
		later()
		time.Sleep(5 * time.Second)
		return errLost
	case doubled:
		later()
	}
	return t.w.land(msgs, last)
}

// land writes all, if the target ends with that sequence.
func (w *world) land(msgs []*nats.Msg, last uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint64(len(w.target)) != last {
		return stage.ErrFenced
	}
	for _, m := range msgs {
		c := *m
		c.Data = append([]byte(nil), m.Data...)
		w.target = append(w.target, &c)
	}
	w.gone = false
	w.allBeforeLocked(w.positionLocked())
	return nil
}

// positionLocked returns the source's message that was copied last.
func (w *world) positionLocked() uint64 {
	if len(w.target) == 0 {
		return 0
	}
	p, err := stage.ParsePosition(w.target[len(w.target)-1].Header.Get(stage.SourceHeader))
	if err != nil {
		w.t.Error(err)
	}
	return p.Seq
}

func (t to) Hint(context.Context) (stage.Hint, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	return t.w.hint, nil
}

// SetHint is lost at times, and at times late: then an old hint replaces a newer one.
func (t to) SetHint(_ context.Context, h stage.Hint) error {
	set := func() {
		t.w.mu.Lock()
		defer t.w.mu.Unlock()
		t.w.hint = h
		if h.Last == uint64(len(t.w.target)) {
			t.w.allBeforeLocked(h.Position.Seq)
		}
	}
	switch {
	case t.w.chance(10):
		return errLost
	case t.w.chance(10):
		d := t.w.upTo(10 * time.Second)
		go func() { time.Sleep(d); set() }()
	default:
		set()
	}
	return nil
}

// stamp gives IDs, as [stamp.Stamper.Msgs] does.
func (w *world) stamp(_ context.Context, msgs []*nats.Msg) error {
	time.Sleep(w.upTo(10 * time.Millisecond))
	if w.chance(20) {
		return errLost
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range msgs {
		w.lastID++
		m.Header.Set(stamp.Header, subjects.ID(w.lastID).String())
	}
	return nil
}

func (w *world) stage(once bool, change ...func(*stage.Config)) *stage.Stage {
	return w.stageTo(to{w}, once, change...)
}

func (w *world) stageTo(target stage.Target, once bool, change ...func(*stage.Config)) *stage.Stage {
	cfg := stage.Config{Source: w, SourceName: "ORDERS", Target: target, Stamp: w.stamp,
		Subject: func(s string) string { return map[string]string{"orders": "stamped.orders"}[s] },
		Fits:    func(*nats.Msg) error { return nil }, DeadLetters: letters{w}, Once: once, Settle: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	return stage.New(cfg)
}

// judge checks that the target holds the plain messages of the source, each once.
func (w *world) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var want []uint64
	for i, k := range w.source {
		if k == plain {
			want = append(want, uint64(i+1))
		}
	}
	if len(w.target) != len(want) {
		w.t.Fatalf("the target holds %d messages, want %d", len(w.target), len(want))
	}
	w.allBeforeLocked(w.positionLocked())
	ids := make(map[string]bool)
	for i, m := range w.target {
		id := m.Header.Get(stamp.Header)
		p, err := stage.ParsePosition(m.Header.Get(stage.SourceHeader))
		if string(m.Data) != fmt.Sprint(want[i]) || ids[id] || id == "" || err != nil || p.Seq != want[i] ||
			m.Header.Get(nats.MsgIdHdr) != "" {
			w.t.Fatalf("message %d is %q with headers %v", i+1, m.Data, m.Header)
		}
		ids[id] = true
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), created: time.Now(), first: 1,
		letters: make(map[uint64]bool)}
}

// calm returns a world in which nothing is lost, with messages of these kinds.
func calm(t *testing.T, seed uint64, kinds ...kind) *world {
	w := newWorld(t, seed)
	w.calm, w.source = true, kinds
	return w
}

// expireCopied removes messages of the source that were copied.
func (w *world) expireCopied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = max(w.first, w.positionLocked()+1)
}

// expire removes the target's messages. The judge uses the record of writes.
func (w *world) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = len(w.target) > 0
}
