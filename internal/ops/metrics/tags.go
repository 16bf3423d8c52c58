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

// chooseEvery is how long chosen tags keep their series. Prometheus keeps each name that was ever shown for hours, and
// tags of about the same speed may take turns.
const chooseEvery = 5 * time.Minute

// segments collects the metrics of an allocator. They are collected together, since each pass over 100,000 tags takes
// tens of milliseconds. It is safe for concurrent use.
//
// At a time it shows series of their own for at most most tags: those with the most requests when they were chosen.
type segments struct {
	a    *segment.Allocator
	most int
	now  func() time.Time

	mu     sync.Mutex
	shown  []string
	chosen time.Time
}

var (
	waitingDesc     = waitingRequests.desc(string(worker.Segment))
	tagsDesc        = segmentTags.desc()
	secondsLeftDesc = segmentSecondsLeft.desc()
)

// ofTags are the series that each shown tag has, with the function that reads the value.
var ofTags = []struct {
	info  SeriesInfo
	value func(segment.TagStats) float64
}{
	{tagIDs, func(t segment.TagStats) float64 { return float64(t.Issued) }},
	{tagSecondsLeft, func(t segment.TagStats) float64 { return t.SecondsLeft }},
	{tagErrors, func(t segment.TagStats) float64 { return float64(t.Errors) }},
	{tagWaits, func(t segment.TagStats) float64 { return float64(t.Waits) }},
}

// Describe implements [prometheus.Collector].
func (*segments) Describe(descs chan<- *prometheus.Desc) {
	descs <- waitingDesc
	descs <- tagsDesc
	descs <- secondsLeftDesc
	for _, s := range ofTags {
		descs <- s.info.ofEach()
	}
}

// Collect implements [prometheus.Collector].
func (s *segments) Collect(series chan<- prometheus.Metric) {
	stats, busiest := s.a.Busiest(s.most)
	series <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(stats.Waiting))
	series <- prometheus.MustNewConstMetric(tagsDesc, prometheus.GaugeValue, float64(stats.Tags))
	series <- prometheus.MustNewConstMetric(secondsLeftDesc, prometheus.GaugeValue, stats.SecondsLeft)
	for _, t := range s.choose(busiest) {
		for _, of := range ofTags {
			m, err := prometheus.NewConstMetric(of.info.ofEach(), of.info.valueType(), of.value(t), t.Tag)
			if err == nil { // a name that is not UTF-8 has no series
				series <- m
			}
		}
	}
}

// choose returns the figures of the tags to show. It chooses among the busiest tags every chooseEvery, and for free
// places at once.
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
