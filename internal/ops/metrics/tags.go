package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// shownTags is how many tags have series of their own. Each costs Prometheus four series for every worker.
const shownTags = 20

// chooseEvery is how long chosen tags keep their series. If tags of about the same speed took turns at each scrape,
// there would be many series, and Prometheus keeps each of them for hours.
const chooseEvery = 5 * time.Minute

// segments collects the metrics of an allocator. They are collected together, since each pass over 100,000 tags takes
// tens of milliseconds. It is safe for concurrent use.
//
// At most most tags have series of their own: those with the most requests at the last choice.
type segments struct {
	a    *segment.Allocator
	most int
	now  func() time.Time

	mu     sync.Mutex
	shown  []string
	chosen time.Time
}

// ofTags are the series that each shown tag has, with the function that reads the value.
var ofTags = []struct {
	SeriesInfo
	value func(segment.TagStats) float64
}{
	{tagIDs, func(t segment.TagStats) float64 { return float64(t.Issued) }},
	{tagSecondsLeft, func(t segment.TagStats) float64 { return t.SecondsLeft }},
	{tagErrors, func(t segment.TagStats) float64 { return float64(t.Errors) }},
	{tagWaits, func(t segment.TagStats) float64 { return float64(t.Waits) }},
}

// Describe implements [prometheus.Collector]. It describes nothing, which Prometheus allows: series come and go.
func (*segments) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s *segments) Collect(series chan<- prometheus.Metric) {
	stats, busiest := s.a.Busiest(s.most)
	add := func(s SeriesInfo, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if s.Type == "counter" {
			kind = prometheus.CounterValue
		}
		m, err := prometheus.NewConstMetric(prometheus.NewDesc(s.Name, s.Help, s.labels(), nil), kind, value, labels...)
		if err == nil { // a name that is not UTF-8 has no series
			series <- m
		}
	}
	add(waitingRequests, float64(stats.Waiting), string(worker.Segment))
	add(segmentTags, float64(stats.Tags))
	add(segmentSecondsLeft, stats.SecondsLeft)
	for _, t := range s.choose(busiest) {
		for _, of := range ofTags {
			add(of.SeriesInfo, of.value(t), t.Tag)
		}
	}
}

// choose returns the figures of the tags to show. It replaces them by the busiest tags every chooseEvery, and fills
// free places at once.
func (s *segments) choose(busiest []segment.TagStats) (all []segment.TagStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.chosen) >= chooseEvery {
		s.shown, s.chosen = nil, now
	}
	for _, t := range busiest {
		if len(s.shown) < s.most && t.Issued > 0 && !slices.Contains(s.shown, t.Tag) {
			s.shown = append(s.shown, t.Tag)
		}
	}
	for _, tag := range s.shown {
		if t, ok := s.a.StatsOf(tag); ok {
			all = append(all, t)
		}
	}
	return all
}
