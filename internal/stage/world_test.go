package stage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/stamp"
)

// A world is a source and a target in virtual time. Writes are lost, late or doubled, and
// acknowledgements lost, as a seed decides. Its methods are safe for concurrent use.
type world struct {
	t *testing.T

	mu      sync.Mutex
	rand    *rand.Rand
	calm    bool // nothing is lost any more
	created time.Time
	source  []string // data; message i has sequence i+1
	target  []*nats.Msg
	gone    bool // the target's messages have expired
	hint    stage.Hint
	lastID  int64
	writes  int

	// The reader passes over message skip, and then the source begins with firstThen.
	skip, firstThen uint64
	skipped         bool
}

var errLost = errors.New("no answer")

// A fate is what becomes of a write.
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

func (w *world) publish(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.source = append(w.source, strconv.Itoa(len(w.source)))
	}
}

// State implements [stage.Source].
func (w *world) State(context.Context) (stage.SourceState, error) {
	time.Sleep(w.upTo(20 * time.Millisecond))
	if w.chance(20) {
		return stage.SourceState{}, errLost
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first := uint64(1)
	if w.skipped {
		first = w.firstThen
	}
	return stage.SourceState{Created: w.created, First: first, Last: uint64(len(w.source))}, nil
}

// Open implements [stage.Source].
func (w *world) Open(_ context.Context, after uint64) (stage.Reader, error) {
	if w.chance(20) {
		return nil, errLost
	}
	return &reader{w, after}, nil
}

type reader struct {
	w    *world
	last uint64
}

func (r *reader) Next(ctx context.Context) (stage.Message, error) {
	for {
		if r.w.chance(200) {
			return stage.Message{}, errLost
		}
		r.w.mu.Lock()
		have := uint64(len(r.w.source))
		if r.last < have {
			if r.last++; r.last == r.w.skip {
				r.last++
				r.w.skipped = true
			}
			m := stage.Message{Seq: r.last, Pending: have - r.last, Subject: "orders",
				Data: []byte(r.w.source[r.last-1]), Header: nats.Header{nats.MsgIdHdr: {"m"}}}
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

func (r *reader) Close() {}

// to is the target, as a [stage.Target].
type to struct{ w *world }

func (t to) State(context.Context) (stage.TargetState, error) {
	time.Sleep(t.w.upTo(20 * time.Millisecond))
	if t.w.chance(20) {
		return stage.TargetState{}, errLost
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	s := stage.TargetState{Created: t.w.created, Last: uint64(len(t.w.target)), Gone: t.w.gone}
	if s.Last > 0 && !s.Gone {
		s.Header = t.w.target[s.Last-1].Header
	}
	return s, nil
}

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
	return nil
}

func (t to) Hint(context.Context) (stage.Hint, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	return t.w.hint, nil
}

// SetHint is lost at times, and at times late: then an old hint replaces a newer one.
func (t to) SetHint(_ context.Context, h stage.Hint) error {
	set := func() { t.w.mu.Lock(); t.w.hint = h; t.w.mu.Unlock() }
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
		m.Header.Set(stamp.Header, client.ID(w.lastID).String())
	}
	return nil
}

func (w *world) stage(once bool) *stage.Stage { return w.stageTo(to{w}, once) }

func (w *world) stageTo(target stage.Target, once bool) *stage.Stage {
	return stage.New(stage.Config{Source: w, SourceName: "ORDERS", Target: target, Stamp: w.stamp,
		Subject: func(s string) string { return "stamped." + s }, Largest: func() int { return 1 << 20 },
		Once: once, Log: slog.New(slog.DiscardHandler)})
}

// judge checks that the target holds the first n messages of the source, each once.
func (w *world) judge(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.target) != n {
		w.t.Fatalf("the target holds %d messages, want %d", len(w.target), n)
	}
	ids := make(map[string]bool)
	for i, m := range w.target {
		id := m.Header.Get(stamp.Header)
		p, err := stage.ParsePosition(m.Header.Get(stage.SourceHeader))
		if string(m.Data) != w.source[i] || ids[id] || id == "" || err != nil || p.Seq != uint64(i+1) ||
			m.Header.Get(nats.MsgIdHdr) != "" {
			w.t.Fatalf("message %d is %q with headers %v", i+1, m.Data, m.Header)
		}
		ids[id] = true
	}
}

var (
	simulated = flag.Int("sim.n", 100, "schedules to play")
	from      = flag.Int("sim.from", 1, "seed of the first")
)

// TestSimulation plays stages that are started, killed and started again, up to three at
// a time, while writes, answers and hints go astray, and the target's messages expire.
func TestSimulation(t *testing.T) {
	n := *simulated
	if testing.Short() {
		n = min(n, 50)
	}
	writes := 0
	for seed := *from; seed < *from+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { writes += play(t, uint64(seed)) })
		})
		if t.Failed() {
			t.Fatalf("seed %d: play it again with -args -sim.from=%d -sim.n=1", seed, seed)
		}
	}
	t.Logf("%d schedules, %d writes", n, writes)
}

func play(t *testing.T, seed uint64) (writes int) {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), created: time.Now()}
	var lives sync.WaitGroup
	for range 1 + w.rand.IntN(3) {
		lives.Go(func() {
			for range 3 {
				time.Sleep(w.upTo(5 * time.Second))
				ctx, kill := context.WithTimeout(t.Context(), w.upTo(30*time.Second))
				if err := w.stage(false).Run(ctx); err != nil {
					t.Error(err)
				}
				kill()
			}
		})
	}
	for range 20 {
		w.publish(int(w.upTo(100)))
		time.Sleep(w.upTo(3 * time.Second))
	}
	lives.Wait()
	time.Sleep(time.Minute) // for what is late
	w.calmDown()
	if err := w.stage(true).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.judge(len(w.source))
	hint := w.hint
	w.expire()
	w.publish(10)
	if err := w.stage(true).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.judge(len(w.source))
	if hint.Last == 0 {
		return w.writes
	}
	w.expire()
	w.hint = hint // an older one came late
	w.publish(1)
	var stopped *stage.Stop
	if err := w.stage(true).Run(t.Context()); !errors.As(err, &stopped) {
		t.Errorf("with a hint for message %d the stage goes on behind message %d: %v", hint.Last, len(w.target), err)
	}
	return w.writes
}

// A message that has expired is a gap; one that was deleted by itself is none.
func TestAMessageThatLeftUnreadIsMissed(t *testing.T) {
	for first, want := range map[uint64]bool{1: false, 3: true} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, rand: rand.New(rand.NewPCG(1, 1)), calm: true, created: time.Now()}
			w.publish(5)
			w.skip, w.firstThen = 2, first
			err := w.stage(true).Run(t.Context())
			if _, stopped := errors.AsType[*stage.Stop](err); stopped != want {
				t.Errorf("message 3 follows message 1, and the first is %d then: %v", first, err)
			}
		})
	}
}

// expire removes the target's messages. What is judged is what was written.
func (w *world) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = len(w.target) > 0
}
