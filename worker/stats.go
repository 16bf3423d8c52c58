package worker

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// The statistics of all tags are taken every statsEvery, or less often where
// there are many tags: one tag costs about 0.25 us, so statsEveryTag bounds the
// cost to one part in 400 of a CPU. For 100,000 tags that is every 10 s.
const (
	statsEvery    = time.Second
	statsEveryTag = 100 * time.Microsecond
)

// noData is the data of endpoints that have none.
var noData = json.RawMessage("{}")

// A statistics is what a worker shows of its tags in $SRV.STATS. It is taken in
// the background, so that a request for it never waits, however many tags there
// are.
type statistics struct {
	cfg    *Config
	latest atomic.Pointer[json.RawMessage]
}

func newStatistics(cfg *Config) *statistics {
	s := &statistics{cfg: cfg}
	s.latest.Store(&noData)
	return s
}

// of returns the statistics of an endpoint as they are.
func (s *statistics) of(e *endpoint) json.RawMessage {
	if e.name != subjects.SegmentEndpoint {
		return noData
	}
	return *s.latest.Load()
}

// keep refreshes the statistics until ctx ends.
func (s *statistics) keep(ctx context.Context) {
	for ctx.Err() == nil {
		tags := s.refresh()
		select {
		case <-time.After(max(statsEvery, time.Duration(tags)*statsEveryTag)):
		case <-ctx.Done():
		}
	}
}

// refresh takes the statistics and returns how many tags they cover.
func (s *statistics) refresh() (tags int) {
	w := s.worker()
	body, err := json.Marshal(w)
	if err != nil {
		s.cfg.Log.Error("the statistics of the tags cannot be encoded; $SRV.STATS shows none", "error", err)
		body = noData
	}
	s.latest.Store(new(json.RawMessage(body)))
	return w.Tags
}

func (s *statistics) worker() subjects.WorkerStats {
	total, busiest := s.cfg.Segments.Busiest(subjects.MaxBusiest)
	w := subjects.WorkerStats{
		Instance: s.cfg.Instance(), At: time.Now().UTC(), Tags: total.Tags,
		IDsPerSecond: subjects.Fraction(total.Speed), SecondsLeft: subjects.Fraction(total.SecondsLeft),
		Waiting: total.Waiting, Waits: total.Waits, Loads: total.Loads, Errors: total.Errors,
		Busiest: make([]subjects.TagStats, len(busiest)),
	}
	if number, held, _ := s.cfg.Number(); held {
		w.Number = &number
	}
	for i, t := range busiest {
		w.Busiest[i] = tagStats(w.Instance, t)
	}
	return w
}

func tagStats(instance string, t segment.TagStats) subjects.TagStats {
	s := subjects.TagStats{
		Tag: t.Tag, Worker: instance, IDsPerSecond: subjects.Fraction(t.Speed), Peak: subjects.Fraction(t.Peak),
		Left: t.Left, SecondsLeft: subjects.Fraction(t.SecondsLeft),
		Step: t.Configured, NextStep: t.Step, RecommendedStep: t.Recommended, LastRange: seconds(t.Lasted),
		Loads: t.Loads, LoadSeconds: seconds(t.LoadTime), Errors: t.Errors, Failing: t.LastError != nil,
		Waits: t.Waits, Waiting: t.Waiting,
	}
	for _, r := range t.Ranges[:min(len(t.Ranges), subjects.MaxRanges)] {
		s.Ranges = append(s.Ranges, subjects.TagRange{
			First: subjects.Decimal(r.First), Next: subjects.Decimal(r.Next), Last: subjects.Decimal(r.Last),
			Current: r.Current,
		})
	}
	return s
}

func seconds(d time.Duration) subjects.Fraction { return subjects.Fraction(d.Seconds()) }
