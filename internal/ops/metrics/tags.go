package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// shownTags is how many tags have series of their own. Each costs Prometheus four series for every worker.
const shownTags = 20

// chooseEvery is the shortest time for which a tag is shown. Each name that was ever shown costs Prometheus memory, so
// only few new names a minute are shown.
const chooseEvery = time.Minute

// segments collects the metrics of an allocator. They are collected together, since each pass over 100,000 tags takes
// tens of milliseconds. It is safe for concurrent use.
//
// At a time it shows series of their own for at most most tags, those with the most requests. A shown tag is replaced
// only by one with more than twice as many requests, so that tags of about the same speed do not take turns.
type segments struct {
	a    *segment.Allocator
	most int
	now  func() time.Time

	mu     sync.Mutex
	shown  map[string]bool
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

// choose returns the figures of the tags to show, chosen from the busiest tags.
func (s *segments) choose(busiest []segment.TagStats) []segment.TagStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []segment.TagStats
	for tag := range s.shown {
		if t, ok := s.a.StatsOf(tag); ok {
			kept = append(kept, t)
		}
	}
	others := slices.DeleteFunc(busiest, func(t segment.TagStats) bool { return s.shown[t.Tag] || t.Issued == 0 })
	now := s.now()
	if now.Sub(s.chosen) < chooseEvery {
		others = others[:min(len(others), s.most-len(s.shown))] // the free places
	} else if len(others) > 0 {
		s.chosen = now
	}
	all := slices.Concat(kept, others)
	worth := func(t segment.TagStats) float64 {
		if s.shown[t.Tag] {
			return 2 * t.Speed
		}
		return t.Speed
	}
	slices.SortFunc(all, func(a, b segment.TagStats) int {
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(a.Tag, b.Tag))
	})
	all = all[:min(len(all), s.most)]
	clear(s.shown)
	for _, t := range all {
		s.shown[t.Tag] = true
	}
	return all
}
