package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// Sources is what the metrics of states are read from at each scrape.
type Sources struct {
	Segments   *segment.Allocator
	Snowflakes *snowflake.Issuer
	Keeper     *workerid.Keeper
	Layout     snowflake.Layout
	Lag        func(worker.Mode) time.Duration
	Ready      func() map[string]error // by mode; nil means ready
	Version    string
	// Second reports whether there is a second registry; nil if that is not watched for.
	Second func() bool
}

// Watch adds the metrics of states. It may be called once.
func (m *Metrics) Watch(s Sources) {
	for mode := range s.Ready() {
		m.registry.MustRegister(ready.read(func() float64 { return s.isReady(mode) }, mode))
	}
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags} {
		m.registry.MustRegister(lagSeconds.read(func() float64 { return s.Lag(mode).Seconds() }, string(mode)))
	}
	m.registry.MustRegister(
		segments{s.Segments},
		waitingRequests.read(func() float64 { return float64(s.Snowflakes.Waiting()) }, string(worker.Snowflake)),
		windowSeconds.read(s.window),
		workerNumber.read(s.number),
		secondRegistry.read(s.second),
		clockOffset.read(func() float64 { return s.Keeper.Status().Offset.Seconds() }),
		timeEnds.read(func() float64 { return float64(s.Layout.Ends().Unix()) }),
		buildInfo.read(func() float64 { return 1 }, s.Version))
}

func (s Sources) second() float64 {
	if s.Second != nil && s.Second() {
		return 1
	}
	return 0
}

func (s Sources) isReady(mode string) float64 {
	if s.Ready()[mode] != nil {
		return 0
	}
	return 1
}

func (s Sources) window() float64 {
	st := s.Keeper.Status()
	if !st.Held {
		return 0
	}
	return max(0, time.Until(time.UnixMilli(st.Until)).Seconds())
}

func (s Sources) number() float64 {
	if st := s.Keeper.Status(); st.Held {
		return float64(st.Number)
	}
	return -1
}

// segments collects the metrics of an allocator. They are collected together,
// since each look at 100,000 tags takes tens of milliseconds.
type segments struct{ a *segment.Allocator }

var (
	waitingDesc     = waitingRequests.desc(string(worker.Segment))
	tagsDesc        = segmentTags.desc()
	secondsLeftDesc = segmentSecondsLeft.desc()
)

// Describe implements [prometheus.Collector].
func (segments) Describe(descs chan<- *prometheus.Desc) {
	descs <- waitingDesc
	descs <- tagsDesc
	descs <- secondsLeftDesc
}

// Collect implements [prometheus.Collector].
func (s segments) Collect(series chan<- prometheus.Metric) {
	stats := s.a.Stats()
	series <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(stats.Waiting))
	series <- prometheus.MustNewConstMetric(tagsDesc, prometheus.GaugeValue, float64(stats.Tags))
	series <- prometheus.MustNewConstMetric(secondsLeftDesc, prometheus.GaugeValue, stats.SecondsLeft)
}
