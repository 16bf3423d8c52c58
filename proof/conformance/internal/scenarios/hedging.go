package scenarios

import (
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
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
	s.Desk.Say(func(r *rig.Request) {
		if r.Nth > 1 {
			r.Issue()
		}
	})
	for i := range 5 {
		name := fmt.Sprint("t", i)
		o := s.next(tag(name), long)
		s.want(o.failure == nil, "%v", o)
		copied := s.sent(name)[1].At.Sub(o.began)
		s.want(copied >= hedgeSoonest-early, "another worker was asked after %v, want %v", copied, hedgeSoonest)
		s.want(o.took() < slack/2, "the call took %v", o.took())
		hedges := s.stats(tag(name)).Hedges
		s.want(hedges >= 1, "no hedge is counted")
	}
}

func playPatience(s *Stage) {
	s.connect(nil)
	s.Desk.Say(after(180 * time.Millisecond))
	for range 8 {
		s.mustNext(order)
	}
	s.eventually(func(string) string {
		before := len(s.Desk.Seen())
		for range 8 {
			s.mustNext(order)
		}
		if copies := len(s.Desk.Seen()) - before - 8; copies > 4 {
			return fmt.Sprintf("answers take 180 ms, and %d copies were sent before they came, for 8 calls", copies)
		}
		return ""
	})
}

func playFirst(s *Stage) {
	s.connect(nil)
	for name, firstIsFirst := range map[string]bool{"first": true, "second": false} {
		s.Desk.Say(rig.Silence)
		call := s.beginNext(tag(name), long)
		first, second := s.arrived(name, 1), s.arrived(name, 2)
		if !firstIsFirst {
			first, second = second, first
		}
		first.Issue()
		second.Issue()
		o := call.end()
		s.want(o.failure == nil, "%v", o)
		s.distinct(o.id())
		s.want(s.Desk.Origin(o.id()) == first, "the call got ID %d, of %v, want that of the first answer, to %v",
			o.id(), s.Desk.Origin(o.id()), first)
		s.Desk.Say(rig.Issue)
		later := s.next(tag(name), long)
		s.want(later.failure == nil && !s.Desk.Origin(later.id()).At.Before(later.began),
			"a later call: %v, of the answer to another copy", later)
	}
}

func playLarge(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) {
		if r.Nth > 1 {
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
	// Requests count twice: those of the last minute raise the limit, and each takes off a tenth of a copy.
	most := 200 + 2*requests/10 + 4*int(lasted.Seconds()+1)
	s.want(copies <= most, "%d requests were copied %d times, want %d at most", requests, copies, most)
	s.want(copies >= 100, "%d requests were copied %d times only: a worker that hangs costs errors", requests, copies)
}
