// Package frozen has a fleet that stands still, for tests of the page and for its pictures; it is internal to natsid
// and may change.
package frozen

import (
	"context"
	"math"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/page"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// Hostile is the name of a tag, and part of other texts, that would run if it were taken for markup.
const Hostile = `"><script>alert(1)</script>`

// At is the time that the clocks of the fleet show.
var At = time.Date(2026, 11, 20, 9, 30, 12, 0, time.UTC)

// Config returns a page of the fleet: two workers that serve, one that has no right clock, and one that was killed.
func Config() page.Config {
	return page.Config{
		Fleet:     fleet{},
		Tags:      func(context.Context) ([]segment.Tag, error) { return tags, nil },
		Info:      info,
		Notes:     func() []string { return []string{"throttled: each tag to 500 IDs/s"} },
		Namespace: subjects.DefaultNamespace,
		Instance:  func() string { return "alpha" }, Now: func() time.Time { return At },
	}
}

var tags = []segment.Tag{
	{Name: Hostile, Step: 1000, MaxID: 1, Updated: At.Add(-time.Hour)},
	{Name: "event", Step: 1000, MaxID: 12001, Updated: At.Add(-time.Minute), MarkAhead: new(int64(12345))},
	{Name: "invoice", Step: 1000, MaxID: 5001, Updated: At.AddDate(0, -1, 0), Description: "numbers of invoices"},
	{Name: "order", Step: 10000, MaxID: 250001, Updated: At.Add(-3 * time.Second), Description: "orders of the shop"},
	{Name: "payment/eu", Step: 1000, MaxID: 3001, Updated: At.AddDate(0, 0, -2)},
	{Name: "reorder", Step: 1000, MaxID: 1, Updated: At.AddDate(-1, 0, 0), Disabled: true},
	{Name: "seat", Step: 100, MaxID: 901, Updated: At.Add(-10 * time.Minute), Rules: segment.Rules{Max: 1000}},
}

func info(t segment.Tag) subjects.TagInfo {
	i := subjects.TagInfo{
		Tag: t.Name, Step: t.Step, NextID: subjects.ID(t.MaxID), Description: t.Description, Updated: t.Updated,
		Disabled: t.Disabled, Max: subjects.ID(t.Rules.Max), MarkAhead: t.MarkAhead,
	}
	if err := subjects.CheckTag(t.Name); err != nil {
		i.Unservable = err.Error()
	}
	i.Throttle = 500
	if t.Name == "order" {
		i.MaxBatch = 5000
	}
	return i
}

// A fleet answers with its workers.
type fleet struct{}

// Look implements the Fleet of [page.Config].
func (fleet) Look(_ context.Context, q wire.ViewRequest) (fleetview.Snapshot, error) {
	s := fleetview.Snapshot{At: At, Numbers: fleetview.Numbers{
		Records: make(map[int]workerid.Record), Heartbeats: make(map[int]workerid.Heartbeat),
	}}
	for i, name := range []string{"alpha", "beta", "gamma", "delta"} {
		s.Workers = append(s.Workers, of(i, name, q))
		until := At.Add(time.Duration(252+i) * time.Second).UnixMilli()
		s.Numbers.Records[i*197] = workerid.Record{Instance: name, Until: until}
		if name != "delta" {
			s.Numbers.Heartbeats[i*197] = workerid.Heartbeat{Instance: name, Since: At.Add(-time.Hour).UnixMilli()}
		}
	}
	return s, nil
}

// of returns a worker of the fleet.
func of(i int, name string, q wire.ViewRequest) fleetview.Worker {
	number := i * 197
	w := fleetview.Worker{Answered: name != "delta", Seen: At, Rates: map[string]fleetview.Rate{
		"segment": {Requests: 410.4, IDs: 2150.4}, "snowflake": {Requests: 95, IDs: 95},
	}}
	w.Registry = "5N7LAQLGLLR4UQACIRT2BJPGKX"
	w.Version, w.Started, w.Until = "0.1.0", At.Add(-time.Hour), At.Add(time.Duration(252+i)*time.Second)
	w.Modes = map[string]wire.ModeView{
		"segment":   {State: wire.Ready, Codes: map[string]int64{"404": 3, "429": int64(12 * i)}},
		"snowflake": {State: wire.Ready, LagSeconds: wire.Fraction(i) / 1000},
	}
	w.Statistics = wire.WorkerStats{Instance: name, Number: &number, At: At, Tags: 4}
	if name == "alpha" || name == "beta" {
		w.Alarms = []wire.OpenAlarm{{Kind: wire.AlarmClockStep, Since: At.Add(-12 * time.Minute),
			Last: At.Add(-12 * time.Minute), Message: "the clock was set back by 0.2 s"}}
	}
	switch name {
	case "gamma":
		w.OffsetMs = 2100
		w.Alarms = append(w.Alarms, []wire.OpenAlarm{
			{Kind: wire.AlarmClockSkew, Since: At.Add(-7 * time.Minute), Last: At.Add(-time.Minute),
				Message: "the clock is 2.1 s ahead of the other workers; no snowflakes are issued until it is right"},
			{Kind: wire.AlarmTableWentBack, Since: At.Add(-9 * time.Minute), Last: At.Add(-9 * time.Minute),
				Message: "tag order: the mark went back " + Hostile},
		}...)
		w.Modes["snowflake"] = wire.ModeView{State: "not ready: the clock is 2.1 s ahead of the other workers"}
	case "delta":
		w.Seen = At.Add(-41 * time.Second)
		return w
	}
	if q.Busiest {
		w.Stages = []wire.StageView{
			{Name: "oslo/4211", From: "ORDERS", To: "ORDERS_STAMPED", Role: "copying", Position: 48210, Behind: 12},
			{Name: "rome/977", From: "ORDERS", To: "ORDERS_STAMPED", Role: "standby", Position: 48198, Behind: 24},
		}
		for _, tag := range []string{"order", "event", "seat"} {
			w.Statistics.Busiest = append(w.Statistics.Busiest, stats(tag, name, i))
		}
	}
	if q.Tag == "order" {
		w.Tag = new(stats("order", name, i))
	}
	if q.Hour {
		w.Hour = &wire.HourView{End: At.Truncate(wire.HourStep).Unix(), Modes: map[string][]wire.HourPoint{
			"segment": series(i, 3500), "snowflake": series(i+3, 950),
		}}
	}
	return w
}

// stats returns the statistics of a tag on worker i.
func stats(tag, worker string, i int) wire.TagStats {
	first := subjects.ID(i*20000 + 200001)
	return wire.TagStats{
		Tag: tag, Worker: worker, IDsPerSecond: wire.Fraction(1300 / (len(tag) + i)), Left: 12400,
		SecondsLeft: wire.Fraction(90 - i), Step: 10000, NextStep: 20000, RecommendedStep: 240000,
		Loads: 21, Waits: 1, Ranges: []wire.TagRange{
			{First: first, Next: first + subjects.ID(1100*i) + 7600, Last: first + 9999, Current: true},
			{First: first + 10000, Next: first + 10000, Last: first + 19999},
		},
	}
}

// series returns an hour that goes up and down.
func series(phase, most int) (all []wire.HourPoint) {
	for i := range wire.HourPoints {
		v := (1 + math.Sin(float64(i)/40+float64(phase))) / 2
		n := int64(v * float64(most) * 10)
		late := int64((i + 40*phase) % 150 / 140) // for some points of 150
		all = append(all, wire.HourPoint{
			Requests: n, IDs: n * 5, Refused: int64(i%90) / 89 * n / 20, MedianUs: 8 << (phase % 3),
			SlowUs: 256 << (int64(phase%2) + late), LagMs: late * int64(phase+1),
		})
	}
	return all
}
