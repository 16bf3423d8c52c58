package scenarios

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

var onRetries = law("Retries",
	full("retry", "after a 503 another worker is asked at once", playRetry),
	full("back-off", "while all refuse, pauses grow up to half a second", playBackOff),
	full("throttled", "after a 429 the handle sends nothing for as long as it says", playThrottled),
	both("never-again", "after 400, 404, 500 and a 503 that names a time nothing is asked again", playNever),
	both("no-responders", "without a worker the client asks until one serves or its time is up", playNobody),
	full("fail-fast", "by choice a call ends at once where no worker serves", playFailFast),
	both("lost-connection", "calls survive the loss of their connection", playLost),
)

func playRetry(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) {
		if r.Nth == 1 {
			r.Refuse(subjects.Unavailable, "JetStream is away")
		} else {
			r.Issue()
		}
	})
	for name, call := range map[string]pending{
		"one": s.beginNext(tag("one"), long), "five": s.beginN(tag("five"), 5, long),
	} {
		o := call.end()
		s.want(o.failure == nil, "%v, after one refusal", o)
		s.want(o.took() < slack/2, "one refusal cost %v", o.took())
		c := s.stats(tag(name))
		// A hedge may have come before the refusal.
		s.want(c.Retries <= 1 && c.Retries+c.Hedges >= 1, "%d retries are counted, want 1", c.Retries)
	}
}

func playBackOff(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) { r.Refuse(subjects.Unavailable, "JetStream is away") })
	const limit = 3 * time.Second
	o := s.next(order, limit)
	s.want(o.kind == "Deadline" && o.reason == "Unavailable", "%v, want Deadline after Unavailable", o)
	// Pauses of 0, 10, 20, 40, 80 and 160 ms at least, and then 250 ms to 500 ms.
	n, most := len(s.Desk.Seen()), 8+int(o.took()/(250*time.Millisecond))
	s.want(n <= most, "%d copies were sent in %v, want %d at most", n, o.took(), most)
	s.want(n >= 4, "%d copies were sent in %v, want 4 at least", n, o.took())
}

func playThrottled(s *Stage) {
	s.connect(nil)
	const pause = 1500 * time.Millisecond
	s.Desk.Say(func(r *rig.Request) {
		if r.Nth == 1 && r.N == 1 {
			r.Refuse(subjects.TooMany, "the rate is used up", subjects.HeaderRetryAfter, "1500")
		} else {
			r.Issue()
		}
	})
	s.eventually(func(name string) string {
		calls := []pending{s.beginNext(tag(name), long)}
		first := s.arrived(name, 1)
		time.Sleep(pause / 3) // the refusal has arrived by then
		calls = append(calls, s.beginNext(tag(name), long), s.beginN(tag(name), 3, long))
		for _, c := range calls {
			o := c.end()
			s.want(o.failure == nil, "%v", o)
		}
		for _, r := range s.sent(name)[1:] {
			if waited := r.At.Sub(first.At); waited < pause-early {
				return fmt.Sprintf("%v arrived %v after a refusal that demands %v", r, waited, pause)
			}
		}
		return ""
	})
}

func playNever(s *Stage) {
	s.connect(nil)
	for _, c := range []struct {
		code subjects.Code
		kind string
	}{{subjects.BadRequest, "BadRequest"}, {subjects.NotFound, "UnknownTag"}, {subjects.UsedUp, "UsedUp"},
		{subjects.Internal, "Refused"}} {
		s.Desk.Say(func(r *rig.Request) { r.Refuse(c.code, "because") })
		for _, call := range []pending{s.beginNext(order, short), s.beginN(order, 5, short)} {
			o := call.end()
			s.want(o.kind == c.kind, "%v, want %s", o, c.kind)
		}
		s.quiet()
	}
	s.Desk.Say(func(r *rig.Request) {
		r.Refuse(subjects.Unavailable, "the registry is stopped", subjects.HeaderRetryAfter, "5000")
	})
	for _, call := range []pending{s.beginNext(order, short), s.beginN(order, 5, short)} {
		o := call.end()
		s.want(o.kind == "Unavailable", "%v, want Unavailable", o)
	}
	s.quiet()
	s.Desk.Say(rig.Issue)
	s.mustNext(order)
}

func playNobody(s *Stage) {
	s.connect(nil)
	s.check(s.Desk.Close())
	if !s.isFull() {
		o := s.next(order, short)
		s.want(o.kind == "NotServed", "%v, want NotServed", o)
		s.want(o.took() < short/2, "it took %v to find that nobody serves", o.took())
		return
	}
	call := s.beginNext(order, long)
	var calls []pending // whose copies are more than the budget
	for range 100 {
		calls = append(calls, s.beginN(tag("many"), 20, long))
	}
	o := s.next(order, 500*time.Millisecond)
	s.want(o.kind == "Deadline" && o.reason == "NotServed", "%v, want Deadline after NotServed", o)
	s.want(!call.done(), "a call ended since nobody serves for a moment")
	time.Sleep(1500 * time.Millisecond)
	s.check(s.Desk.Open())
	opened := time.Now()
	for _, c := range append(calls, call) {
		o = c.end()
		s.want(o.failure == nil, "%v, though a worker serves again", o)
	}
	took := time.Since(opened)
	s.want(took < slack, "%d calls got their IDs %v after a worker served again", len(calls), took)
}

func playFailFast(s *Stage) {
	s.connect(object{"failFast": true})
	s.check(s.Desk.Close())
	for _, call := range []pending{s.beginNext(order, short), s.beginN(order, 5, short)} {
		o := call.end()
		s.want(o.kind == "NotServed", "%v, want NotServed", o)
		s.want(o.took() < short/2, "it took %v to find that nobody serves", o.took())
	}
	s.check(s.Desk.Open())
	s.mustNext(order)
}

func playLost(s *Stage) {
	proxy, err := natsproxy.Start(s.NATS)
	s.check(err)
	defer proxy.Close()
	s.connect(object{"servers": []string{proxy.URL()}})
	s.mustNext(order)
	s.Desk.Say(rig.Silence)
	var calls []pending
	if s.isFull() {
		calls = append(calls, s.beginNext(order, long), s.beginN(order, 20_000, long))
		s.arrived("order", 3)
	}
	proxy.Refuse(true)
	proxy.Cut()
	if s.isFull() {
		time.Sleep(100 * time.Millisecond)
		calls = append(calls, s.beginNext(order, long), s.beginN(order, 5, long))
	}
	time.Sleep(300 * time.Millisecond)
	s.Desk.Say(rig.Issue)
	proxy.Refuse(false)
	for _, c := range calls {
		o := c.end()
		s.want(o.failure == nil, "%v, after the connection was lost for 0.4 s", o)
	}
	for end := time.Now().Add(slack); ; {
		o := s.next(order, time.Second)
		if o.failure == nil {
			return
		}
		s.want(time.Now().Before(end) && !s.isFull(), "%v, though the network is back", o)
	}
}
