package scenarios

import (
	"slices"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

var onTheEnd = slices.Concat(law("The end",
	full("close", "a closed client ends its calls, and gives out what it holds", playClose),
	both("disconnect", "on a closed connection calls end, also those under way", playDisconnect),
	full("drain", "on a connection that drains calls end, also those under way", playDrain),
), law("Counts",
	full("statistics", "counts and the observer show each request, copy, retry and failure", playStats),
))

// underWay begins calls of each kind that get no answer.
func (s *Stage) underWay() (calls []pending) {
	s.Desk.Say(rig.Silence)
	calls = []pending{
		s.beginNext(tag("one"), short), s.beginN(tag("five"), 5, short),
		s.beginNext(prefetch(tag("held"), 5, time.Minute), short),
	}
	for _, name := range []string{"one", "five", "held"} {
		s.arrived(name, 1)
	}
	return calls
}

// ended ends the scenario unless all calls end as closed ones long before their time is up.
func (s *Stage) ended(calls []pending) {
	for _, c := range calls {
		o := c.end()
		s.want(o.kind == "Closed", "%v, want Closed", o)
		s.want(o.took() < short/2, "a call ended only after %v", o.took())
	}
	for _, o := range []outcome{s.next(order, short), s.nextN(order, 5, short), s.next(tag("new"), short)} {
		s.want(o.kind == "Closed", "a later call: %v, want Closed", o)
	}
}

func playClose(s *Stage) {
	s.connect(nil)
	const n = 10
	held := prefetch(order, n, time.Minute)
	ids := []subjects.ID{s.mustNext(held)}
	calls := s.underWay()
	holds := int(s.stats(held).Held) // or more, if another range is on its way
	s.want(holds >= n-1, "the handle holds %d IDs, want %d at least", holds, n-1)
	s.call("close", object{})
	s.ended(calls)
	for len(ids) <= 10*n {
		o := s.next(held, short)
		if o.kind == "Closed" {
			break
		}
		s.want(o.failure == nil, "%v, though the closed client holds IDs", o)
		ids = append(ids, o.id())
	}
	s.want(len(ids) > holds, "the closed client gave out %d IDs of %d", len(ids)-1, holds)
	s.want(len(ids) <= 10*n, "a closed client gives out IDs without end")
	s.distinct(ids...)
}

func playDisconnect(s *Stage) {
	s.connect(nil)
	s.mustNext(order)
	var calls []pending
	if s.isFull() {
		calls = s.underWay()
	}
	s.call("disconnect", object{})
	s.ended(calls)
	s.Desk.Say(rig.Issue)
	s.connect(nil)
	s.mustNext(order)
}

func playDrain(s *Stage) {
	s.connect(nil)
	calls := s.underWay()
	s.call("disconnect", object{"drain": true})
	s.ended(calls)
}

func playStats(s *Stage) {
	s.connect(nil)
	for range 5 {
		s.nextN(order, 10, long)
	}
	s.Desk.Say(func(r *rig.Request) {
		switch {
		case r.N == 1 && r.Nth == 1:
			r.Refuse(subjects.Unavailable, "away")
		case r.N == 2 && r.Nth == 1: // no answer
		case r.N == 3:
			r.Refuse(subjects.NotFound, "no such tag")
		default:
			r.Issue()
		}
	})
	for n := range 3 {
		s.nextN(order, n+1, long)
	}
	c := s.stats(order)
	// On a busy machine there are more hedges, also instead of the retry.
	s.want(c.IDs == 53 && c.Requests == 8 && c.Failures == 1 && c.Held == 0,
		"the counts are %+v, want 53 IDs, 8 requests, 1 failure, and none held", c)
	s.want(c.Retries <= 1 && c.Hedges >= 1 && c.Retries+c.Hedges >= 2,
		"the counts are %+v, want 1 retry, and 1 hedge at least", c)
}
