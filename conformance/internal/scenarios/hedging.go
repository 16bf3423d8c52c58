package scenarios

import (
	"slices"
	"time"

	"github.com/natsid/natsid/conformance/internal/rig"
)

var onHedging = slices.Concat(law("Hedging",
	full("hang", "where a worker hangs, another is asked, and not before 100 ms", playHang),
	full("patience", "workers that are slower than that are given the time that they usually take", playPatience),
	full("first-answer", "the first answer counts; that of another copy is dropped", playFirst),
	full("large", "a request for more than 10,000 IDs is not copied before 2 s", playLarge),
), law("The budget",
	full("budget", "where nobody answers, copies are a tenth of the requests, and 200 at first", playBudget),
))

// hedgeSoonest is the shortest time without an answer after which another worker is asked.
const hedgeSoonest = 100 * time.Millisecond

func playHang(s *Stage) {
	s.connect(nil)
	for i := range 5 {
		before := len(s.Desk.Seen())
		s.Desk.Say(func(r *rig.Request) {
			if r.Number > before+1 {
				r.Issue()
			}
		})
		o := s.next(order, long)
		s.want(o.failure == nil, "%v", o)
		copied := s.Desk.Seen()[before+1].At.Sub(o.began)
		s.want(copied >= hedgeSoonest-early, "another worker was asked after %v, want %v", copied, hedgeSoonest)
		s.want(o.took() < 3*time.Second, "the call took %v", o.took())
		hedges := s.stats(order).Hedges
		s.want(hedges >= int64(i+1), "%d hedges are counted, want %d at least", hedges, i+1)
	}
}

func playPatience(s *Stage) {
	s.connect(nil)
	s.Desk.Say(after(180 * time.Millisecond))
	for range 8 {
		s.mustNext(order)
	}
	before := len(s.Desk.Seen())
	for range 8 {
		s.mustNext(order)
	}
	copies := len(s.Desk.Seen()) - before - 8
	s.want(copies <= 4, "answers always take 180 ms, and %d of 8 calls asked another worker before", copies)
}

func playFirst(s *Stage) {
	s.connect(nil)
	for _, firstIsFirst := range []bool{true, false} {
		before := len(s.Desk.Seen())
		s.Desk.Say(rig.Silence)
		call := s.beginNext(order, long)
		first, second := s.arrived(before+1), s.arrived(before+2)
		if !firstIsFirst {
			first, second = second, first
		}
		s.Desk.Say(rig.Issue)
		first.Issue()
		second.Issue()
		o := call.end()
		s.want(o.failure == nil, "%v", o)
		s.distinct(o.id())
		// A third copy may have been sent, and answered, but not before these.
		s.want(s.Desk.Origin(o.id()) == first, "the call got ID %d, of %v, want that of the first answer, to %v",
			o.id(), s.Desk.Origin(o.id()), first)
		later := s.next(order, long)
		s.want(later.failure == nil && !s.Desk.Origin(later.id()).At.Before(later.began),
			"a later call: %v, of the answer to another copy", later)
	}
}

func playLarge(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) {
		if r.Number > 1 {
			r.Issue()
		}
	})
	o := s.nextN(order, 10_001, long)
	s.want(o.failure == nil, "%v", o)
	copied := s.Desk.Seen()[1].At.Sub(o.began)
	s.want(copied >= 2*time.Second-early, "a request for 10,001 IDs was copied after %v", copied)
}

func playBudget(s *Stage) {
	s.connect(nil)
	s.Desk.Say(rig.Silence)
	const requests = 600
	var calls []pending
	for range requests {
		calls = append(calls, s.beginN(order, 1, 2500*time.Millisecond))
	}
	for _, c := range calls {
		o := c.end()
		s.want(o.kind == "Deadline", "%v, want Deadline", o)
	}
	seen := s.Desk.Seen()
	lasted := seen[len(seen)-1].At.Sub(seen[0].At)
	copies := len(seen) - requests
	most := 200 + requests/10 + 4*int(lasted.Seconds()+1)
	s.want(copies <= most, "%d requests were copied %d times, want %d at most", requests, copies, most)
	s.want(copies >= 100, "%d requests were copied %d times only: a worker that hangs costs errors", requests, copies)
}
