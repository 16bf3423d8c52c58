package metrics

import (
	"slices"
	"time"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// Sources are what the metrics of states are read from at each scrape.
type Sources struct {
	Segments   *segment.Allocator
	Snowflakes *issuer.Issuer
	Keeper     *workerid.Keeper
	Layout     snowflake.Layout
	Lag        func(worker.Mode) time.Duration
	Ready      func() map[string]error // by mode; nil means ready
	Outs       func(worker.Mode) []worker.Out
	Version    string
	Second     func() bool // whether another registry serves the same subjects
}

// Watch adds the metrics of states, which are read from s. Call it once.
func (m *Metrics) Watch(s Sources) {
	for mode := range s.Ready() {
		m.registry.MustRegister(ready.read(func() float64 { return oneIf(s.Ready()[mode] == nil) }, mode))
	}
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags, worker.Relay} {
		m.registry.MustRegister(lagSeconds.read(func() float64 { return s.Lag(mode).Seconds() }, string(mode)))
		for _, reason := range worker.AllReasons() {
			m.registry.MustRegister(outOfGroup.read(func() float64 {
				is := func(o worker.Out) bool { return o.Reason == reason }
				return oneIf(slices.ContainsFunc(s.Outs(mode), is))
			}, string(mode), string(reason)))
		}
	}
	m.registry.MustRegister(
		&segments{a: s.Segments, most: shownTags, now: time.Now},
		waitingRequests.read(func() float64 { return float64(s.Snowflakes.Waiting()) }, string(worker.Snowflake)),
		windowSeconds.read(func() float64 {
			if st := s.Keeper.Status(); st.Held {
				return max(0, time.Until(time.UnixMilli(st.Until)).Seconds())
			}
			return 0
		}),
		workerNumber.read(func() float64 {
			if st := s.Keeper.Status(); st.Held {
				return float64(st.Number)
			}
			return -1
		}),
		secondRegistry.read(func() float64 { return oneIf(s.Second()) }),
		clockOffset.read(func() float64 { return s.Keeper.Status().Offset.Seconds() }),
		timeEnds.read(func() float64 { return float64(s.Layout.Ends().Unix()) }))
	registerProcess(m.registry, s.Version)
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
