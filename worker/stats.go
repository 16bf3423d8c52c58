package worker

import (
	"sync"
	"time"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// Statistics are computed on demand, and then reused for statsEvery, or for statsEveryTag per tag if that is longer. A
// tag costs about 0.25 us, so they take at most 1/400 of a CPU, however often they are requested. With 100,000 tags
// they are up to 10 s old.
const (
	statsEvery    = 10 * time.Millisecond
	statsEveryTag = 100 * time.Microsecond
)

// A statistics caches the figures of tags for $SRV.STATS. It is safe for concurrent use.
type statistics struct {
	cfg *Config

	mu     sync.Mutex
	latest wire.WorkerStats
	until  time.Time // when latest becomes too old; zero while there is none
}

// with returns the statistics of the worker, with at most the given number of tags in Busiest.
func (s *statistics) with(tags int) wire.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until) {
		s.latest = s.worker()
		s.until = time.Now().Add(max(statsEvery, time.Duration(s.latest.Tags)*statsEveryTag))
	}
	w := s.latest
	w.Busiest = w.Busiest[:min(len(w.Busiest), tags)]
	return w
}

// Stats returns totals over the worker's tags, and the statistics of the busiest tags, at most the given number. They
// are up to 10 ms old, or 0.1 ms per tag if that is longer. It is safe for concurrent use.
func (w *Worker) Stats(tags int) wire.WorkerStats { return w.stats.with(tags) }

// StatsOf returns the statistics of a tag, nil if nothing of it is in memory. It is safe for concurrent use.
func (w *Worker) StatsOf(tag string) *wire.TagStats { return w.cfg.statsOf(tag) }

func (cfg *Config) statsOf(tag string) *wire.TagStats {
	s, ok := cfg.Segments.StatsOf(tag)
	if !ok {
		return nil
	}
	return new(tagStats(cfg.Instance(), s))
}

func (s *statistics) worker() wire.WorkerStats {
	total, busiest := s.cfg.Segments.Busiest(wire.MaxBusiest)
	w := wire.WorkerStats{
		Instance: s.cfg.Instance(), At: time.Now().UTC(), Tags: total.Tags,
		IDsPerSecond: wire.Fraction(total.Speed), SecondsLeft: wire.Fraction(total.SecondsLeft),
		Waiting: total.Waiting, Waits: total.Waits, Loads: total.Loads, Errors: total.Errors,
		Busiest: make([]wire.TagStats, len(busiest)),
	}
	if number, held, _ := s.cfg.Number(); held {
		w.Number = &number
	}
	for i, t := range busiest {
		w.Busiest[i] = tagStats(w.Instance, t)
	}
	return w
}

func tagStats(instance string, t segment.TagStats) wire.TagStats {
	s := wire.TagStats{
		Tag: t.Tag, Worker: instance, IDsPerSecond: wire.Fraction(t.Speed),
		Left: t.Left, SecondsLeft: wire.Fraction(t.SecondsLeft),
		Step: t.Configured, NextStep: t.Step, RecommendedStep: t.Recommended,
		Loads: t.Loads, Errors: t.Errors, Failing: t.LastError != nil,
		Waits: t.Waits, Waiting: t.Waiting,
	}
	for _, r := range t.Ranges[:min(len(t.Ranges), wire.MaxRanges)] {
		s.Ranges = append(s.Ranges, wire.TagRange{
			First: subjects.ID(r.First), Next: subjects.ID(r.Next), Last: subjects.ID(r.Last),
			Current: r.Current,
		})
	}
	return s
}
