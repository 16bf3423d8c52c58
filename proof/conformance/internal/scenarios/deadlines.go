package scenarios

import (
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

var onDeadlines = law("Deadlines",
	both("deadline", "a call without an answer ends when its time is up, or after the client's", playDeadline),
	both("late-answer", "an answer that comes after its call has ended goes to no other call", playLate),
	full("cancel", "a canceled call ends at once; those that share its request go on", playCancel),
	full("unwanted", "once no call waits for a request, no copy of it is sent", playUnwanted),
)

// early is by how much a timer may be rounded.
const early = 5 * time.Millisecond

func playDeadline(s *Stage) {
	s.connect(object{"timeoutMs": 700})
	s.Desk.Say(rig.Silence)
	judge := func(o outcome, limit time.Duration) {
		s.want(o.kind == "Deadline", "%v, want Deadline", o)
		s.want(o.took() >= limit-early, "a call with %v ended after %v", limit, o.took())
		s.want(o.took() < limit+3*time.Second, "a call with %v ended only after %v", limit, o.took())
	}
	judge(s.next(order, 300*time.Millisecond), 300*time.Millisecond)
	judge(s.nextN(order, 5, 300*time.Millisecond), 300*time.Millisecond)
	const standard = 700 * time.Millisecond
	judge(s.begin("next", object{"target": order}, standard).end(), standard)
	judge(s.begin("nextN", object{"target": order, "n": 5}, standard).end(), standard)
	if s.isFull() {
		judge(s.next(prefetch(order, 5, time.Minute), 300*time.Millisecond), 300*time.Millisecond)
	}
}

func playLate(s *Stage) {
	s.connect(nil)
	for range 3 {
		s.Desk.Say(rig.Silence)
		before := len(s.Desk.Seen())
		o := s.next(order, 250*time.Millisecond)
		s.want(o.kind == "Deadline", "%v, want Deadline", o)
		late := s.Desk.Seen()[before:]
		s.Desk.Say(func(r *rig.Request) {
			for _, old := range late {
				old.Issue()
			}
			late = nil
			r.Issue()
		})
		o = s.next(order, long)
		s.want(o.failure == nil, "%v", o)
		s.distinct(o.id())
		s.want(!s.Desk.Origin(o.id()).At.Before(o.began), "ID %d is of the answer to a call that had ended", o.id())
	}
}

func playCancel(s *Stage) {
	s.connect(nil)
	s.Desk.Say(rig.Silence)
	var calls []pending
	for range 20 {
		calls = append(calls, s.beginNext(order, long))
	}
	calls = append(calls, s.beginN(order, 7, long), s.beginN(order, 8, long))
	s.arrived("order", 2)
	for i, c := range calls {
		if i%2 == 0 {
			s.call("cancel", object{"request": c.call.ID})
		}
	}
	for i, c := range calls {
		if i%2 == 0 {
			o := c.end()
			s.want(o.kind == "Canceled", "%v, want Canceled", o)
			s.want(o.took() < slack, "a canceled call ended only after %v", o.took())
		}
	}
	for i, c := range calls {
		s.want(i%2 == 0 || !c.done(), "a call ended with the ones that were canceled")
	}
	s.Desk.Say(rig.Issue)
	for _, r := range s.Desk.Seen() {
		r.Issue()
	}
	var ids []subjects.ID
	for i, c := range calls {
		if i%2 == 1 {
			o := c.end()
			s.want(o.failure == nil, "%v", o)
			ids = append(ids, o.ids...)
		}
	}
	s.distinct(ids...)
}

func playUnwanted(s *Stage) {
	s.connect(nil)
	s.Desk.Say(rig.Silence)
	for name, c := range map[string]pending{
		"one": s.beginNext(tag("one"), long), "five": s.beginN(tag("five"), 5, long),
	} {
		s.arrived(name, 1)
		s.call("cancel", object{"request": c.call.ID})
		o := c.end()
		s.want(o.kind == "Canceled", "%v, want Canceled", o)
		after := s.beginNext(tag("after-"+name), long) // arrives after the copies that were sent before the end
		s.arrived("after-"+name, 1)
		s.call("cancel", object{"request": after.call.ID})
		after.end()
		sent := len(s.sent(name))
		time.Sleep(1200 * time.Millisecond)
		more := len(s.sent(name)) - sent
		s.want(more <= 1, "%d copies were sent for a call that had ended", more) // one may have been on its way
	}
}
