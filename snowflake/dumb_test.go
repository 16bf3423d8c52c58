package snowflake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/natsid/natsid/subjects"
)

// dumb is a second generator, written from the comment of Generator without a
// shift, a mask or a division: it counts ticks and IDs one by one.
type dumb struct {
	layout                     Layout
	perTick, ticks             int64
	worker, from, until, ahead int64
	cur                        place // the next one
	entered                    int64 // tick of the last random start
	closed                     bool
	issued                     map[int64]bool
	saw                        map[string]int // how often each rule was needed
}

// A place is a sequence in a tick.
type place struct{ tick, sequence int64 }

func newDumb(l Layout, worker, from, until, maxAhead int64) *dumb {
	d := &dumb{layout: l, perTick: 1, ticks: 1, worker: worker, from: from, until: until, entered: -1,
		issued: map[int64]bool{}, saw: map[string]int{}}
	for range l.Sequence {
		d.perTick *= 2
	}
	for range l.Time {
		d.ticks *= 2
	}
	for d.ahead = 1; (d.ahead+1)*l.Unit <= maxAhead; {
		d.ahead++
	}
	for d.begins(d.cur.tick) < from && d.cur.tick < d.ticks {
		d.cur.tick++
	}
	return d
}

func (d *dumb) begins(tick int64) int64 { return d.layout.Epoch + tick*d.layout.Unit }

// step returns the place n steps after p, or before it.
func (d *dumb) step(p place, n int64) place {
	for ; n > 0; n-- {
		if p.sequence++; p.sequence == d.perTick {
			p = place{p.tick + 1, 0}
		}
	}
	for ; n < 0; n++ {
		if p.sequence--; p.sequence < 0 {
			p = place{p.tick - 1, d.perTick - 1}
		}
	}
	return p
}

func (d *dumb) extend(until int64) {
	if until > d.until {
		d.until = until
	}
}

func (d *dumb) close() int64 {
	d.closed = true
	if len(d.issued) == 0 {
		return d.from
	}
	free := d.begins(d.cur.tick)
	if d.cur.sequence > 0 {
		free = d.begins(d.cur.tick + 1)
	}
	return max(free, d.from)
}

// next issues n IDs at now, where random is the draw of a random start. If dry, it only reports whether it would.
func (d *dumb) next(now, n, random int64, dry bool) (ids []subjects.ID, err error) {
	if d.closed {
		return nil, ErrClosed
	}
	if now < d.layout.Epoch {
		return nil, ErrEpoch
	}
	clock := int64(0)
	for d.begins(clock+1) <= now {
		clock++
	}
	start, entered := d.cur, d.entered
	upTo := clock
	if d.ahead == 1 {
		upTo--
	}
	if d.step(d.cur, n-1).tick <= upTo && entered < clock {
		start = d.step(place{clock, d.perTick - 1}, -(n - 1))
		for range d.perTick - 1 {
			if start != d.cur {
				start = d.step(start, -1)
			}
		}
		start, entered = d.step(start, random), clock
	}
	last := d.step(start, n-1)
	switch {
	case last.tick >= d.ticks:
		return nil, ErrTimeEnds
	case last.tick-clock > d.ahead:
		return nil, &BehindError{
			By:      time.Duration((last.tick-clock-d.ahead)*d.layout.Unit) * time.Millisecond,
			SetBack: len(d.issued) > 0 && d.cur.tick > clock+d.ahead+1+d.ahead,
		}
	case d.begins(last.tick) >= d.until:
		return nil, ErrWindow
	case dry:
		return nil, nil
	}
	if entered != d.entered && d.cur.tick == clock {
		d.saw["random start in a tick that was run into"]++
	}
	if start.tick < clock {
		d.saw["reaches back"]++
	}
	if last.tick == clock+d.ahead {
		d.saw["all of MaxAhead"]++
	}
	if start == d.cur && start.sequence == 0 {
		d.saw["starts at 0"]++
	}
	for p := start; p != d.step(last, 1); p = d.step(p, 1) {
		id := p.tick
		for range d.layout.Worker {
			id *= 2
		}
		id += d.worker
		for range d.layout.Business + d.layout.Sequence {
			id *= 2
		}
		if id += p.sequence; d.issued[id] {
			return nil, fmt.Errorf("the dumb one repeats %d", id)
		}
		d.issued[id] = true
		ids = append(ids, subjects.ID(id))
	}
	d.cur, d.entered = d.step(last, 1), entered
	return ids, nil
}

// A story encodes a layout, a window, and its events.
type story []byte

// below returns a number in [0, n), n at most 256; 0 at the end of the story.
func (s *story) below(n int64) int64 {
	if len(*s) == 0 {
		return 0
	}
	b := int64((*s)[0])
	*s = (*s)[1:]
	return b % n
}

// play plays a story with both generators, which must agree in each step, and
// returns how often each outcome and rule occurred.
func play(t *testing.T, s story) map[string]int {
	unit := []int64{1, 10, 1000}[s.below(3)]
	l := Layout{
		Time: 4 + int(s.below(6)), Worker: 1 + int(s.below(3)),
		Business: int(s.below(3)), Sequence: 1 + int(s.below(4)),
		Epoch: 1000 * s.below(256), Unit: unit,
	}
	worker := s.below(int64(l.Workers()))
	from := l.Epoch + (s.below(256)-16)*unit/8
	until := from + s.below(256)*unit/4
	ahead := s.below(256) * unit / 40 // up to 6 ticks
	g, err := NewGenerator(l, int(worker), from, until, time.Duration(ahead)*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	d := newDumb(l, worker, from, until, ahead)
	now := from + (s.below(256)-32)*unit/32
	for step := 0; len(s) > 0; step++ {
		switch what := s.below(32); {
		case what < 16:
			now += s.below(256) * unit / 64
		case what < 19:
			now -= s.below(256) * unit / 32
		case what == 19: // anywhere, from before the epoch to after the end
			now = l.Epoch + (s.below(256)*(d.ticks+8)/256-4)*unit
		case what < 24:
			until := now + (s.below(256)-64)*unit/8
			g.Extend(until)
			d.extend(until)
		case what == 24 && s.below(8) == 0:
			if got, want := g.Close(), d.close(); got != want {
				t.Fatalf("step %d: closed, free from %d, the dumb one says %d", step, got, want)
			}
		}
		n := int64(1)
		switch s.below(8) {
		case 5, 6:
			n += s.below(d.perTick + 2)
		case 7:
			n += s.below(8 * d.perTick)
		}
		random := s.below(256)
		g.random = func(_, n int64) int64 { return random % n }

		check := g.CheckAt(now)
		if _, want := d.next(now, 1, random%d.perTick, true); !reflect.DeepEqual(check, want) {
			t.Fatalf("step %d, at %d: CheckAt says %v, the dumb one %v", step, now, check, want)
		}
		runs, err := g.NextAt(now, int(n))
		got := ids(runs)
		want, wantErr := d.next(now, n, random%d.perTick, false)
		same := slices.Equal(got, want) && reflect.DeepEqual(err, wantErr)
		if !same || runs.Len() != len(got) || g.Until() != d.until {
			t.Fatalf("step %d: %d IDs at %d of %+v, until %d:\n%d %v, the dumb one says until %d\n%d %v",
				step, n, now, l, g.Until(), got, err, d.until, want, wantErr)
		}
		if _, behind := errors.AsType[*BehindError](err); behind {
			d.saw["behind"]++
		} else {
			d.saw[fmt.Sprint(err)]++
		}
	}
	return d.saw
}

// stories come from a fixed seed; fuzzing mutates them.
func stories() (all []story) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		s := make(story, 400)
		for i := range s {
			s[i] = byte(rnd.Uint32())
		}
		all = append(all, s)
	}
	return all
}

func FuzzGenerator(f *testing.F) {
	f.Add([]byte(stories()[0])) // TestStoriesHoldEveryCase plays them all
	f.Fuzz(func(t *testing.T, s []byte) { play(t, s[:min(len(s), 1000)]) })
}

// Without every case in its stories FuzzGenerator would prove little.
func TestStoriesHoldEveryCase(t *testing.T) {
	saw := map[string]int{}
	for _, s := range stories() {
		for what, n := range play(t, s) {
			saw[what] += n
		}
	}
	for _, what := range []string{
		"<nil>", "behind", ErrClosed.Error(), ErrEpoch.Error(), ErrTimeEnds.Error(), ErrWindow.Error(),
		"reaches back", "all of MaxAhead", "starts at 0", "random start in a tick that was run into",
	} {
		if saw[what] < 300 {
			t.Errorf("%d times: %s", saw[what], what)
		}
	}
}
