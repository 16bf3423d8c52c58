package issuer

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

const (
	deadline = 1500 * time.Millisecond
	ahead    = snowflake.DefaultMaxAhead
)

// inBubble runs f in virtual time with an issuer on a layout that began a day
// ago, whose window ends in an hour. Its clock is the virtual one plus offset ms.
func inBubble(t *testing.T, f func(i *Issuer, offset *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		l := snowflake.Leaf
		l.Epoch = time.Now().Add(-24 * time.Hour).UnixMilli()
		g, err := snowflake.NewGenerator(l, 1, time.Now().UnixMilli(), time.Now().Add(time.Hour).UnixMilli(), ahead)
		if err != nil {
			t.Fatal(err)
		}
		i := New(deadline, 8, func() int64 { return time.Now().UnixMilli() + offset.Load() })
		i.Use(g)
		time.Sleep(time.Second)
		f(i, &offset)
	})
}

type answer struct {
	name string
	n    int
	at   time.Duration
	err  error
}

// begin makes the issuer use a number whose window begins in a second.
func begin(t *testing.T, i *Issuer) *snowflake.Generator {
	t.Helper()
	g, err := snowflake.NewGenerator(i.Generator().Layout(), 2, i.Now()+1000, i.Now()+3600_000, ahead)
	if err != nil {
		t.Fatal(err)
	}
	i.Use(g)
	return g
}

// ask requests n IDs and parks if necessary; the answer goes to out.
func ask(t *testing.T, i *Issuer, name string, n int, out chan<- answer) {
	t.Helper()
	start := time.Now()
	runs, err := i.Next(n)
	if !errors.Is(err, ErrWait) {
		out <- answer{name, runs.Len(), 0, err}
		return
	}
	done := func(r snowflake.Runs, err error) { out <- answer{name, r.Len(), time.Since(start), err} }
	if err := i.Park(n, done); err != nil {
		out <- answer{name, 0, 0, err}
	}
}

func TestParkedRequestsAreServedInOrderOfArrival(t *testing.T) {
	inBubble(t, func(i *Issuer, _ *atomic.Int64) {
		out := make(chan answer, 8)
		ask(t, i, "idle", 100_000, out)
		ask(t, i, "batch", 100_000, out)
		ask(t, i, "single", 1, out) // would fit, but came later
		for _, want := range []string{"idle", "batch", "single"} {
			got := <-out
			if got.name != want || got.err != nil || got.at > 30*time.Millisecond {
				t.Errorf("got %+v, want %s served within 30 ms", got, want)
			}
		}
		if i.Waiting() != 0 {
			t.Errorf("%d still parked", i.Waiting())
		}
	})
}

func TestWhatTheQueueHasNoTimeForIsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(i *Issuer, _ *atomic.Int64) {
		most := int(i.Generator().Layout().Yield(deadline / 2)) // the largest batch of a worker
		out := make(chan answer, 8)
		ask(t, i, "idle", most, out)
		if got := <-out; got.err != nil {
			t.Fatal(got)
		}
		for round := range 3 {
			ask(t, i, "first", most, out)
			ask(t, i, "second", most/2, out)
			for _, n := range []int{most, 1} {
				ask(t, i, "third", n, out)
				if got := <-out; !errors.Is(got.err, ErrTooMany) || got.at != 0 {
					t.Errorf("round %d: %+v, want ErrTooMany at once", round, got)
				}
			}
			for range 2 {
				if got := <-out; got.err != nil || got.at > deadline*3/4 {
					t.Errorf("round %d: %+v, want all IDs well before the deadline", round, got)
				}
			}
		}
	})
}

func TestASmallStepBackIsRiddenOutAnyOtherIsRefusedAtOnce(t *testing.T) {
	inBubble(t, func(i *Issuer, offset *atomic.Int64) {
		out := make(chan answer, 1)
		ask(t, i, "before", 1, out)
		<-out
		for _, back := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond} {
			offset.Store(-back.Milliseconds())
			if err := i.Ready(deadline, 0); err != nil {
				t.Errorf("%v back: not ready: %v", back, err)
			}
			ask(t, i, "small", 1, out)
			if got := <-out; got.err != nil || got.at > back-5*time.Millisecond {
				t.Errorf("%v back: %+v, want IDs", back, got)
			}
		}
		time.Sleep(time.Second)
		ask(t, i, "between", 1, out)
		<-out
		for _, back := range []time.Duration{100 * time.Millisecond, time.Hour} {
			offset.Store(-10 - back.Milliseconds())
			b, ok := errors.AsType[*snowflake.BehindError](i.Ready(deadline, 0))
			if !ok || !b.SetBack || b.By < back-10*time.Millisecond || b.By > back {
				t.Errorf("%v back: ready says %v", back, b)
			}
			ask(t, i, "large", 1, out)
			if got := <-out; got.err == nil || got.at != 0 {
				t.Errorf("%v back: %+v, want an error at once", back, got)
			}
		}
	})
}

func TestEveryParkedRequestIsAnsweredByItsDeadline(t *testing.T) {
	inBubble(t, func(i *Issuer, offset *atomic.Int64) {
		out := make(chan answer, 16)
		begin(t, i)
		for range 9 {
			ask(t, i, "parked", 1, out)
		}
		if got := <-out; !errors.Is(got.err, ErrTooMany) {
			t.Errorf("the ninth of eight: %+v, want ErrTooMany", got)
		}
		offset.Store(-3600_000) // it gets worse while they wait
		for range 8 {
			if got := <-out; got.err == nil || got.at > deadline {
				t.Errorf("%+v, want an error within %v", got, deadline)
			}
		}
	})
}

func TestALostNumberFailsWhatIsParkedAndANewOneServes(t *testing.T) {
	inBubble(t, func(i *Issuer, _ *atomic.Int64) {
		out := make(chan answer, 1)
		g := begin(t, i)
		ask(t, i, "parked", 1, out)
		g.Close()
		i.Use(nil)
		if got := <-out; !errors.Is(got.err, snowflake.ErrNoNumber) {
			t.Errorf("%+v, want snowflake.ErrNoNumber", got)
		}
		if err := i.Ready(deadline, 0); !errors.Is(err, snowflake.ErrNoNumber) {
			t.Errorf("ready: %v", err)
		}
		from, until := time.Now().Add(-time.Second).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
		fresh, _ := snowflake.NewGenerator(g.Layout(), 2, from, until, ahead)
		i.Use(fresh)
		ask(t, i, "after", 1, out)
		if got := <-out; got.err != nil {
			t.Errorf("%+v, want IDs of the new number", got)
		}
	})
}

func TestTheEndOfTheWindowIsSeenAhead(t *testing.T) {
	inBubble(t, func(i *Issuer, _ *atomic.Int64) {
		time.Sleep(time.Hour - 2*time.Second) // a second before the end
		if err := i.Ready(0, 500*time.Millisecond); err != nil {
			t.Errorf("half a second ahead: %v", err)
		}
		if err := i.Ready(0, 1500*time.Millisecond); !errors.Is(err, snowflake.ErrWindow) {
			t.Errorf("one and a half seconds ahead: %v, want snowflake.ErrWindow", err)
		}
		if _, err := i.Next(1); err != nil {
			t.Errorf("now: %v", err)
		}
	})
}

func TestAnOldReadingOfTheClockIsNotTakenForAStep(t *testing.T) {
	inBubble(t, func(i *Issuer, _ *atomic.Int64) {
		g, stalls := i.Generator(), 3
		i.now = func() int64 {
			read := time.Now().UnixMilli()
			if stalls > 0 { // this goroutine loses its CPU while others issue
				stalls--
				time.Sleep(100 * time.Millisecond)
				if _, err := g.NextAt(time.Now().UnixMilli(), 1); err != nil {
					t.Error(err)
				}
			}
			return read
		}
		if _, err := i.Next(1); err != nil || stalls > 0 {
			t.Errorf("Next: %v, %d stalls to come", err, stalls)
		}
	})
}

// The end of a window is moved every second, and stays a few seconds ahead.
func TestABatchBeyondAWindowThatIsExtendedIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := snowflake.Layout{Time: 41, Worker: 1, Sequence: 4, Epoch: time.Now().UnixMilli() - 1000, Unit: 1}
		now := func() int64 { return time.Now().UnixMilli() }
		g, err := snowflake.NewGenerator(l, 1, now(), now()+3000, snowflake.DefaultMaxAhead)
		if err != nil {
			t.Fatal(err)
		}
		i := New(20*time.Second, 8, now)
		i.Use(g)
		out := make(chan answer, 1)
		ask(t, i, "batch", 16*10_000, out) // 10 s of them
		for range 12 {
			time.Sleep(time.Second)
			g.Extend(now() + 3000)
		}
		if got := <-out; got.err != nil || got.n != 160_000 || got.at < 9*time.Second || got.at > 11*time.Second {
			t.Errorf("%+v, want IDs after 10 s", got)
		}
		ask(t, i, "the window is not extended", 16*10_000, out)
		if got := <-out; !errors.Is(got.err, snowflake.ErrWindow) || got.at > 20*time.Second {
			t.Errorf("%+v, want snowflake.ErrWindow", got)
		}
	})
}
