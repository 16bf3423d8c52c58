// Package metrics counts what operators alert on and serves it in the format
// of Prometheus. The cores do not import it: they keep counters, and report events to
// functions that internal/app connects with it.
package metrics

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// Metrics is the metrics of one process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	ids      map[worker.Mode]prometheus.Counter
	requests map[outcome]prometheus.Counter
	waits    map[worker.Mode]prometheus.Observer
	loads    *prometheus.HistogramVec
	alarms   *prometheus.CounterVec
	heldBack *prometheus.CounterVec
}

// An outcome is the labels of a request. All of them exist from the start: a
// request looks them up without a lock, and an alert on a code that was never
// sent sees 0.
type outcome struct {
	mode worker.Mode
	code subjects.Code
}

// New returns the metrics of events, all at 0, and those of the Go runtime and
// the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ids:      make(map[worker.Mode]prometheus.Counter),
		requests: make(map[outcome]prometheus.Counter),
		waits:    make(map[worker.Mode]prometheus.Observer),
		loads:    loadSeconds.histograms(0.0005),
		alarms:   alarmsTotal.counters(),
		heldBack: alarmsHeldBack.counters(),
	}
	m.addModes()
	for _, a := range subjects.Alarms() {
		m.alarms.WithLabelValues(string(a.Kind))
		m.heldBack.WithLabelValues(string(a.Kind))
	}
	for _, outcome := range []string{"ok", "error", "unknown"} {
		m.loads.WithLabelValues(outcome)
	}
	m.registry.MustRegister(m.loads, m.alarms, m.heldBack,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// addModes adds the metrics of requests, at 0 for every mode and code.
func (m *Metrics) addModes() {
	ids, requests, waits := idsTotal.counters(), requestsTotal.counters(), waitSeconds.histograms(0.001)
	codes := append(subjects.Codes(), subjects.CodeInfo{Code: subjects.OK})
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags} {
		m.ids[mode] = ids.WithLabelValues(string(mode))
		m.waits[mode] = waits.WithLabelValues(string(mode))
		for _, c := range codes {
			m.requests[outcome{mode, c.Code}] = requests.WithLabelValues(string(mode), c.Code.String())
		}
	}
	m.registry.MustRegister(ids, requests, waits)
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
		m.waits[a.Mode].Observe(a.Took.Seconds())
	}
}

// Alarmed counts an alarm.
func (m *Metrics) Alarmed(kind subjects.Alarm) { m.alarms.WithLabelValues(string(kind)).Inc() }

// AlarmHeldBack counts an alarm that was not raised, since one like it was raised just before.
func (m *Metrics) AlarmHeldBack(kind subjects.Alarm) { m.heldBack.WithLabelValues(string(kind)).Inc() }

// Loaded counts a load of a range. Anyone may request a tag that does not exist:
// that is no error.
func (m *Metrics) Loaded(_ string, took time.Duration, err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, segment.ErrUnknownTag):
		outcome = "unknown"
	case err != nil:
		outcome = "error"
	}
	m.loads.WithLabelValues(outcome).Observe(took.Seconds())
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
