package worker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// The figures of all tags are taken every statsEvery, or less often where there
// are many: to look at one takes about 0.25 us, so with statsEveryTag between
// two looks they take one part in 400 of a CPU at most. For 100,000 tags that
// is every 10 s.
const (
	statsEvery    = time.Second
	statsEveryTag = 100 * time.Microsecond
)

// noData is the data of endpoints that have none.
var noData = json.RawMessage("{}")

// statsOf is the [micro.StatsHandler]. The service calls it with the lock held
// that each of its requests needs, so it only hands out what is there.
func (w *Worker) statsOf(e *micro.Endpoint) any {
	if e.Name != subjects.SegmentEndpoint {
		return noData
	}
	return *w.stats.Load()
}

// keepStats takes the figures anew until ctx ends.
func (w *Worker) keepStats(ctx context.Context) {
	for ctx.Err() == nil {
		tags := w.takeStats()
		select {
		case <-time.After(max(statsEvery, time.Duration(tags)*statsEveryTag)):
		case <-ctx.Done():
		}
	}
}

// takeStats keeps the figures of this moment for statsOf, and returns of how
// many tags they are.
func (w *Worker) takeStats() (tags int) {
	s := w.workerStats()
	body, err := json.Marshal(s)
	if err != nil {
		w.cfg.Log.Error("the figures of the tags cannot be told", "error", err)
		body = noData
	}
	w.stats.Store(new(json.RawMessage(body)))
	return s.Tags
}

func (w *Worker) workerStats() subjects.WorkerStats {
	total, busiest := w.cfg.Segments.Busiest(subjects.MaxBusiest)
	s := subjects.WorkerStats{
		Instance: w.cfg.Instance(), At: time.Now().UTC(),
		Tags: total.Tags, IDsPerSecond: subjects.Fraction(total.Speed), SecondsLeft: subjects.Fraction(total.SecondsLeft),
		Waiting: total.Waiting, Waits: total.Waits, Loads: total.Loads, Errors: total.Errors,
		Busiest: make([]subjects.TagStats, len(busiest)),
	}
	if number, held, _ := w.cfg.Number(); held {
		s.Number = &number
	}
	for i, t := range busiest {
		s.Busiest[i] = tagStats(s.Instance, t)
	}
	return s
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
			First: subjects.Decimal(r.First), Next: subjects.Decimal(r.Next), Last: subjects.Decimal(r.Last), Current: r.Current,
		})
	}
	return s
}

func seconds(d time.Duration) subjects.Fraction { return subjects.Fraction(d.Seconds()) }

// addStats adds what this worker and the store know of a tag beyond its entry.
func (w *Worker) addStats(info *subjects.TagInfo, t segment.Tag) {
	if t.MarkAhead != nil {
		info.MarkAhead = new(subjects.Decimal(*t.MarkAhead))
	}
	if s, ok := w.cfg.Segments.StatsOf(t.Name); ok {
		info.Stats = new(tagStats(w.cfg.Instance(), s))
	}
}
