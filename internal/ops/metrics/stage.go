package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natsid/natsid/internal/stage"
)

// A stageSeries is one metric of a stage, with the function that reads it.
type stageSeries struct {
	SeriesInfo
	read func(stage.Progress) float64 // nil: 1 for the role of the label, 0 for the others
}

var stageRole = SeriesInfo{
	Name: "natsid_stamp_role", Type: gauge, Labels: "from, to, role",
	Help: "1 for the present role of the stage, 0 for the other roles.",
}

var ofStage = []stageSeries{
	{SeriesInfo{
		Name: "natsid_stamp_ready", Type: gauge, Labels: "from, to",
		Help: "1 while the stage copies or stands by for another.",
	}, func(p stage.Progress) float64 {
		if p.Ready(time.Now()) != nil {
			return 0
		}
		return 1
	}},
	{SeriesInfo: stageRole},
	{SeriesInfo{
		Name: "natsid_stamp_copied_total", Type: counter, Labels: "from, to",
		Help: "Messages that this process copied.",
	}, func(p stage.Progress) float64 { return float64(p.Copied) }},
	{SeriesInfo{
		Name: "natsid_stamp_position", Type: gauge, Labels: "from, to",
		Help: "Sequence of the last message of the source that is copied.",
	}, func(p stage.Progress) float64 { return float64(p.Position) }},
	{SeriesInfo{
		Name: "natsid_stamp_behind", Type: gauge, Labels: "from, to",
		Help: "Messages that are not copied yet, as far as the stage knows.",
	}, func(p stage.Progress) float64 { return float64(p.Behind) }},
	{SeriesInfo{
		Name: "natsid_stamp_batches_total", Type: counter, Labels: "from, to",
		Help: "Batches that were written, each by one request for IDs.",
	}, func(p stage.Progress) float64 { return float64(p.Batches) }},
	{SeriesInfo{
		Name: "natsid_stamp_fenced_total", Type: counter, Labels: "from, to",
		Help: "Batches that were refused, since another stage had written.",
	}, func(p stage.Progress) float64 { return float64(p.Fenced) }},
	{SeriesInfo{
		Name: "natsid_stamp_retries_total", Type: counter, Labels: "from, to",
		Help: "Interruptions after which the stage went on by itself; its log says why.",
	}, func(p stage.Progress) float64 { return float64(p.Retries) }},
	{SeriesInfo{
		Name: "natsid_stamp_hint_failures_total", Type: counter, Labels: "from, to",
		Help: "Hints of the position that could not be written.",
	}, func(p stage.Progress) float64 { return float64(p.HintFailures) }},
	{SeriesInfo{
		Name: "natsid_stamp_dead_letters_total", Type: counter, Labels: "from, to",
		Help: "Messages that became dead letters.",
	}, func(p stage.Progress) float64 { return float64(p.DeadLetters) }},
	{SeriesInfo{
		Name: "natsid_stamp_dropped_total", Type: counter, Labels: "from, to",
		Help: "Messages that were dropped with `--core`; always 0 without.",
	}, func(p stage.Progress) float64 { return float64(p.Dropped) }},
}

// StageSeries returns all metrics of `natsid stamp`, without those of the Go runtime and
// of the process.
func StageSeries() (all []SeriesInfo) {
	for _, s := range ofStage {
		all = append(all, s.SeriesInfo)
	}
	return append(all, buildInfo)
}

// A StageSource is the source of the metrics of a stage, which are read at each scrape.
type StageSource struct {
	From, To string
	Progress func() stage.Progress
	Version  string
}

// Handler serves the metrics of a stage.
func (s StageSource) Handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(s, buildInfo.read(func() float64 { return 1 }, s.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe implements [prometheus.Collector].
func (s StageSource) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(s, descs)
}

// Collect implements [prometheus.Collector].
func (s StageSource) Collect(series chan<- prometheus.Metric) {
	p := s.Progress()
	for _, one := range ofStage {
		if one.read != nil {
			kind := prometheus.GaugeValue
			if one.Type == counter {
				kind = prometheus.CounterValue
			}
			series <- prometheus.MustNewConstMetric(one.desc(s.From, s.To), kind, one.read(p))
		}
	}
	for _, role := range stage.Roles() {
		is := 0.0
		if role == p.Role {
			is = 1
		}
		desc := stageRole.desc(s.From, s.To, string(role))
		series <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, is)
	}
}
