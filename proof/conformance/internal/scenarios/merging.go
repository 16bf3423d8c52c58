package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

var onMerging = law("Merging",
	full("merging", "calls that wait at the same time share requests", playMerging),
	full("merging-fresh", "no call gets an ID of a request that was sent before the call began", playFresh),
	full("merging-apart", "calls of other handles, and of nextN, share nothing", playApart),
	full("merging-alone", "a call alone leaves at once: no timer gathers calls", playAlone),
	full("merging-parallel", "a request that hangs does not stall other calls", playParallel),
	full("merging-left", "numbers that are left of a tag go to as many calls, and limit no later request", playLeft),
	full("merging-limit", "a worker's limit splits a shared request, and is remembered", playLimit),
	full("busy", "where five full requests wait, further calls fail at once, and nothing is sent", playBusy),
)

// after returns a policy that issues late.
func after(d time.Duration) rig.Policy {
	return func(r *rig.Request) { time.AfterFunc(d, r.Issue) }
}

func playMerging(s *Stage) {
	s.connect(nil)
	s.Desk.Say(after(20 * time.Millisecond))
	o := s.beginBurst(order, 1000, long).end()
	s.want(len(o.ids) == 1000, "%v", o)
	s.distinct(o.ids...)
	n := len(s.Desk.Seen())
	s.want(n <= 100, "1,000 calls at once needed %d requests, want 100 at most", n)
}

func playFresh(s *Stage) {
	s.connect(nil)
	s.Desk.Say(after(30 * time.Millisecond))
	var calls []pending
	for range 300 {
		calls = append(calls, s.beginNext(order, long))
		time.Sleep(time.Millisecond)
	}
	var ids []subjects.ID
	for _, c := range calls {
		o := c.end()
		s.want(o.failure == nil, "%v", o)
		s.distinct(o.id())
		from := s.Desk.Origin(o.id())
		s.want(!from.At.Before(o.began), "ID %d is from %v, which had arrived %v before the call began",
			o.id(), from, o.began.Sub(from.At))
		ids = append(ids, o.id())
	}
	s.distinct(ids...)
}

func playApart(s *Stage) {
	s.connect(nil)
	s.Desk.Say(after(20 * time.Millisecond))
	targets := []struct {
		target object
		kind   string
	}{
		{order, "segment.order"}, {tag("other"), "segment.other"}, {snowflake, "snowflake"},
		{with(snowflake, "business", 3), "snowflake.3"}, {with(tag("few"), "maxBatch", 5), "segment.few"},
	}
	var calls []pending
	for _, t := range targets {
		calls = append(calls, s.beginBurst(t.target, 25, long))
	}
	runs := s.nextN(order, 777, long)
	for i, c := range calls {
		o := c.end()
		s.want(len(o.ids) == 25, "%v", o)
		s.distinct(o.ids...)
		for _, id := range o.ids {
			from := s.Desk.Origin(id)
			s.want(from.Kind() == targets[i].kind, "a call for %s got ID %d, of %v", targets[i].kind, id, from)
		}
	}
	own := len(runs.runs) == 1 && s.Desk.Origin(runs.runs[0][0]).N == 777
	s.want(own, "%v, want the run of a request of its own", runs)
	for _, r := range s.Desk.Seen() {
		s.want(r.Kind() != "segment.few" || r.N <= 5, "%v, for a handle whose requests are for 5 calls at most", r)
	}
}

// A timer of a few milliseconds would show in the median, however busy the machine is.
func playAlone(s *Stage) {
	s.connect(nil)
	var alone, own []time.Duration
	for range 60 {
		alone = append(alone, s.next(order, long).took())
		own = append(own, s.nextN(order, 1, long).took())
	}
	slices.Sort(alone)
	slices.Sort(own)
	a, b := alone[len(alone)/2], own[len(own)/2]
	s.want(a <= 2*b+4*time.Millisecond, "a call alone takes %v, a request of its own %v: it waits for others", a, b)
}

func playParallel(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) {
		switch r.Nth {
		case 1: // it hangs
		case 2:
			r.Issue()
		default:
			time.AfterFunc(500*time.Millisecond, r.Issue)
		}
	})
	s.eventually(func(name string) string {
		hangs := s.beginNext(tag(name), long)
		s.arrived(name, 1)
		o := s.next(tag(name), long)
		s.want(o.failure == nil, "%v", o)
		waited := hangs.done()
		s.want(hangs.end().failure == nil, "the call of the request that hangs failed")
		if waited {
			return "a call waits until an earlier call has its ID"
		}
		return ""
	})
}

func playLimit(s *Stage) {
	s.connect(nil)
	const most = 10
	s.Desk.Say(func(r *rig.Request) {
		time.AfterFunc(10*time.Millisecond, func() {
			if r.N > most {
				r.Refuse(subjects.BadRequest, "too many at once", subjects.HeaderMaxBatch, "10")
			} else {
				r.Issue()
			}
		})
	})
	burst := func() {
		o := s.beginBurst(order, 100, long).end()
		s.want(len(o.ids) == 100, "%v", o)
		s.distinct(o.ids...)
	}
	burst()
	s.eventually(func(string) string {
		before := len(s.Desk.Seen())
		burst()
		for _, r := range s.Desk.Seen()[before:] {
			if r.N > most {
				return fmt.Sprintf("%v, though the worker's limit of %d is known", r, most)
			}
		}
		return ""
	})
}

func playLeft(s *Stage) {
	s.connect(nil)
	s.eventually(func(name string) string {
		s.Desk.Say(func(r *rig.Request) { r.Issue() })
		s.mustNext(tag(name)) // the calls of a burst share requests
		left, fewer := 7, atomic.Bool{}
		s.Desk.Say(func(r *rig.Request) {
			switch {
			case left == 0:
				r.Refuse(subjects.UsedUp, "none is left")
			case r.N > left:
				fewer.Store(true)
				r.Refuse(subjects.UsedUp, "fewer are left", subjects.HeaderMaxBatch, strconv.Itoa(left))
			default:
				left -= r.N
				r.Issue()
			}
		})
		o := s.beginBurst(tag(name), 100, long).end()
		s.want(len(o.ids) == 7 && o.kinds["UsedUp"] == 93, "%v, want 7 IDs and 93 calls UsedUp", o)
		s.distinct(o.ids...)
		if !fewer.Load() {
			return "no request was for more numbers than were left"
		}
		s.Desk.Say(func(r *rig.Request) { r.Issue() })
		before := len(s.Desk.Seen())
		s.beginBurst(tag(name), 100, long).end()
		s.want(len(s.Desk.Seen())-before <= 10, "%d requests for 100 calls", len(s.Desk.Seen())-before)
		return ""
	})
}

func playBusy(s *Stage) {
	s.connect(nil)
	s.Desk.Say(rig.Silence)
	const most, waiting = 10, 5 * 10
	o := s.beginBurst(with(order, "maxBatch", most), 200, time.Second).end()
	busy, waited := o.kinds["Busy"], o.kinds["Deadline"]
	s.want(busy+waited == 200 && waited <= waiting && waited >= waiting-most,
		"%v: want %d calls to wait, and Busy for all others", o, waiting)
	for _, r := range s.Desk.Seen() {
		s.want(r.N <= most, "%v: want %d at most", r, most)
	}
}
