package fleet_test

import (
	"fmt"
	"strconv"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/policy"
)

// The others find out by a poll that the bucket was lost, and the new one makes it.
func startedAtALoss(s *site) {
	a := s.start("a")
	s.start("b")
	s.limit(a, "order", 5)
	s.must(func() error { return setOrder(s, a, "order", true) })
	for i := range 5 {
		if err := natstest.JetStream(s, s.url).DeleteKeyValue(s.Context(), s.ns.SettingsBucket()); err != nil {
			s.Fatal(err)
		}
		c := s.start(fmt.Sprint("c", i))
		eventually(s.T, "the new one has read them", func() bool { return c.Honoured() > 0 })
		if c.rateOf("order") != 5 || !isStrict(c, "order") {
			s.Errorf("start %d: a rate of %d, strict are %v, though others know",
				i, c.rateOf("order"), &c.orders.strict)
		}
		if c.lost.Load() != nil {
			s.Errorf("it says that what others know is gone: %s", *c.lost.Load())
		}
		c.stop()
	}
}

func startedBesideTheHelpless(s *site) {
	s.level.Store(policy.LevelOrder)
	s.answer(natstest.Connect(s, s.url), "helpless", strconv.Itoa(policy.Level), func() uint64 { return 1 })
	s.start("a").stop()
	a := s.start("b")
	eventually(s.T, "it serves", func() bool { return a.Honoured() > 0 && a.refusal() == nil })
}
