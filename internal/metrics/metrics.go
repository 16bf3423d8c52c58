// Package metrics shows what operators alert on, in Prometheus' form. The
// cores know nothing of it: they keep counters, and tell of events.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// Metrics is the series of one process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	ids      map[worker.Mode]prometheus.Counter
	requests map[outcome]prometheus.Counter
	waits    map[worker.Mode]prometheus.Observer
	loads    *prometheus.HistogramVec
	alarms   *prometheus.CounterVec
}

// An outcome is the labels of a request. All there are exist from the start:
// the path of a request looks them up without a lock, and an alert on a code
// that has never been sent sees 0.
type outcome struct {
	mode worker.Mode
	code subjects.Code
}

// New returns the series of events, all at 0.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ids:      make(map[worker.Mode]prometheus.Counter),
		requests: make(map[outcome]prometheus.Counter),
		waits:    make(map[worker.Mode]prometheus.Observer),
	}
	ids := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "natsid_ids_total", Help: "IDs issued, by mode."}, []string{"mode"})
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "natsid_requests_total", Help: "Requests answered, by mode and code; 200 is success."}, []string{"mode", "code"})
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "natsid_wait_seconds", Help: "How long requests waited that could not be answered from memory.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 12)}, []string{"mode"})
	m.loads = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "natsid_segment_load_seconds", Help: "How long loads of a range took, by outcome: ok or error.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}, []string{"outcome"})
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags} {
		m.ids[mode] = ids.WithLabelValues(string(mode))
		m.waits[mode] = waits.WithLabelValues(string(mode))
		for _, c := range append(subjects.Codes(), subjects.CodeInfo{Code: subjects.OK}) {
			m.requests[outcome{mode, c.Code}] = requests.WithLabelValues(string(mode), c.Code.String())
		}
	}
	m.alarms = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "natsid_alarms_total", Help: "Alarms raised, by kind."}, []string{"kind"})
	for _, a := range subjects.Alarms() {
		m.alarms.WithLabelValues(string(a.Kind))
	}
	m.loads.WithLabelValues("ok")
	m.loads.WithLabelValues("error")
	m.registry.MustRegister(ids, requests, waits, m.loads, m.alarms,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Answered counts an answer.
func (m *Metrics) Answered(a worker.Answer) {
	if c, ok := m.requests[outcome{a.Mode, a.Code}]; ok {
		c.Inc()
	}
	if a.IDs > 0 {
		m.ids[a.Mode].Add(float64(a.IDs))
	}
	if a.Parked {
		m.waits[a.Mode].Observe(a.Waited.Seconds())
	}
}

// Alarmed counts an alarm.
func (m *Metrics) Alarmed(kind subjects.Alarm) { m.alarms.WithLabelValues(string(kind)).Inc() }

// Loaded counts a load of a range.
func (m *Metrics) Loaded(_ string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.loads.WithLabelValues(result).Observe(took.Seconds())
}

// Sources is what the series of states are read from at each scrape.
type Sources struct {
	Segments   *segment.Allocator
	Snowflakes *snowflake.Issuer
	Keeper     *workerid.Keeper
	Layout     snowflake.Layout
	Ready      func() map[string]error // by mode; nil means ready
	Version    string
}

// Watch adds the series of states. It may be called once.
func (m *Metrics) Watch(s Sources) {
	gauge := func(name, help string, labels prometheus.Labels, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read))
	}
	for mode := range s.Ready() {
		gauge("natsid_ready", "1 while the mode can issue IDs.", prometheus.Labels{"mode": mode}, func() float64 {
			if s.Ready()[mode] != nil {
				return 0
			}
			return 1
		})
	}
	m.registry.MustRegister(segments{s.Segments})
	gauge("natsid_waiting_requests", waiting, prometheus.Labels{"mode": string(worker.Snowflake)},
		func() float64 { return float64(s.Snowflakes.Waiting()) })
	gauge("natsid_snowflake_window_seconds", "How long snowflakes can be issued without another renewal; 0 without a worker number.", nil,
		func() float64 { return windowLeft(s.Keeper.Status()) })
	gauge("natsid_worker_number", "The worker number; -1 if none is held.", nil, func() float64 {
		if st := s.Keeper.Status(); st.Held {
			return float64(st.Number)
		}
		return -1
	})
	gauge("natsid_clock_offset_seconds", "The own clock minus the registry's, as of the last heartbeat.", nil,
		func() float64 { return s.Keeper.Status().Offset.Seconds() })
	gauge("natsid_snowflake_time_ends_timestamp_seconds", "When the time field of the layout is full.", nil,
		func() float64 { return float64(s.Layout.Ends().Unix()) })
	gauge("natsid_build_info", "Always 1; the label tells the version.", prometheus.Labels{"version": s.Version},
		func() float64 { return 1 })
}

const waiting = "Requests that wait, for a range or for the clock."

var (
	segmentWaiting = prometheus.NewDesc("natsid_waiting_requests", waiting, nil, prometheus.Labels{"mode": string(worker.Segment)})
	segmentTags    = prometheus.NewDesc("natsid_segment_tags", "Tags that hold ranges in memory.", nil, nil)
	segmentLeft    = prometheus.NewDesc("natsid_segment_seconds_left",
		"How long the tag that runs out first lasts at its present speed without another load; +Inf if none is in use.", nil, nil)
)

// segments is the series of an allocator. They are collected together, since
// each look at 100,000 tags takes tens of milliseconds.
type segments struct{ a *segment.Allocator }

// Describe implements [prometheus.Collector].
func (segments) Describe(descs chan<- *prometheus.Desc) {
	descs <- segmentWaiting
	descs <- segmentTags
	descs <- segmentLeft
}

// Collect implements [prometheus.Collector].
func (s segments) Collect(series chan<- prometheus.Metric) {
	stats := s.a.Stats()
	series <- prometheus.MustNewConstMetric(segmentWaiting, prometheus.GaugeValue, float64(stats.Waiting))
	series <- prometheus.MustNewConstMetric(segmentTags, prometheus.GaugeValue, float64(stats.Tags))
	series <- prometheus.MustNewConstMetric(segmentLeft, prometheus.GaugeValue, stats.SecondsLeft)
}

func windowLeft(s workerid.Status) float64 {
	if !s.Held {
		return 0
	}
	return max(0, time.Until(time.UnixMilli(s.Until)).Seconds())
}

// Handler serves the series.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
