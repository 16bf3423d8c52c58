package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/natsid/natsid/internal/stage"
)

// pipeline names the labels that identify a stage.
const pipeline = "from, to"

// ofStage are metrics of a stage, each with the function that reads it.
var ofStage = []struct {
	SeriesInfo
	value func(stage.Progress) float64
}{
	{gauge("natsid_stamp_ready", pipeline, "1 while the stage copies or stands by for another."),
		func(p stage.Progress) float64 { return oneIf(p.Ready(time.Now()) == nil) }},
	{counter("natsid_stamp_copied_total", pipeline, "Messages that this process copied."),
		func(p stage.Progress) float64 { return float64(p.Copied) }},
	{gauge("natsid_stamp_position", pipeline, "Sequence of the last message of the source that is copied."),
		func(p stage.Progress) float64 { return float64(p.Position) }},
	{gauge("natsid_stamp_behind", pipeline, "Messages that are not copied yet, as far as the stage knows."),
		func(p stage.Progress) float64 { return float64(p.Behind) }},
	{counter("natsid_stamp_batches_total", pipeline, "Batches that were written, each by one request for IDs."),
		func(p stage.Progress) float64 { return float64(p.Batches) }},
	{counter("natsid_stamp_fenced_total", pipeline, "Batches that were refused, since another stage had written."),
		func(p stage.Progress) float64 { return float64(p.Fenced) }},
	{counter("natsid_stamp_retries_total", pipeline,
		"Interruptions after which the stage went on by itself; its log says why."),
		func(p stage.Progress) float64 { return float64(p.Retries) }},
	{counter("natsid_stamp_hint_failures_total", pipeline, "Hints of the position that could not be written."),
		func(p stage.Progress) float64 { return float64(p.HintFailures) }},
	{counter("natsid_stamp_dead_letters_total", pipeline, "Messages that became dead letters."),
		func(p stage.Progress) float64 { return float64(p.DeadLetters) }},
}

var stageRole = gauge("natsid_stamp_role", pipeline+", role",
	"1 for the present role of the stage, 0 for the other roles.")

// StageSeries returns all metrics of `natsid stamp`, without those of the Go runtime and the process.
func StageSeries() (all []SeriesInfo) {
	for _, s := range ofStage {
		all = append(all, s.SeriesInfo)
	}
	return append(all, stageRole, buildInfo)
}

// A StageSource is what the metrics of a stage are read from at each scrape.
type StageSource struct {
	From, To string
	Progress func() stage.Progress
	Version  string
}

// Handler serves the metrics of a stage.
func (s StageSource) Handler() http.Handler {
	r := prometheus.NewRegistry()
	registerProcess(r, s.Version)
	for _, one := range ofStage {
		r.MustRegister(one.read(func() float64 { return one.value(s.Progress()) }, s.From, s.To))
	}
	for _, role := range stage.Roles() {
		r.MustRegister(stageRole.read(func() float64 { return oneIf(role == s.Progress().Role) },
			s.From, s.To, string(role)))
	}
	return handler(r)
}
