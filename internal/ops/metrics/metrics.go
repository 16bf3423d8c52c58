// Package metrics keeps the counts on which operators alert and serves them in the format of Prometheus. The cores do
// not import it: they keep counters, and report events to functions that internal/app connects with it.
package metrics

import (
	"errors"
	"math/bits"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// Metrics is the metrics of one process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	loads    *prometheus.HistogramVec
	alarms   *prometheus.CounterVec
	heldBack *prometheus.CounterVec

	segment, snowflake, tags, relay requests
}

// A requests has the metrics of one mode's requests. All codes are in it from the start: so counting an answer takes no
// lock, and an alert on a code that was never sent reads 0.
type requests struct {
	ids   atomic.Int64
	ok    *times // of code OK, which nearly all answers have
	codes map[subjects.Code]*times
	waits prometheus.Observer
}

// New returns the metrics of events, all at 0. [Metrics.Watch] adds the metrics of states.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		loads:    loadSeconds.histograms(0.0005),
		alarms:   alarmsTotal.counters(),
		heldBack: alarmsHeldBack.counters(),
	}
	m.addModes()
	for _, a := range wire.Alarms() {
		m.alarms.WithLabelValues(string(a.Kind))
		m.heldBack.WithLabelValues(string(a.Kind))
	}
	for _, outcome := range []string{"ok", "error", "unknown"} {
		m.loads.WithLabelValues(outcome)
	}
	m.registry.MustRegister(m.loads, m.alarms, m.heldBack)
	return m
}

// addModes adds the metrics of requests, at 0 for every mode and code.
func (m *Metrics) addModes() {
	waits := waitSeconds.histograms(0.001)
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags, worker.Relay} {
		label := string(mode)
		r := m.of(mode)
		r.waits, r.codes = waits.WithLabelValues(label), make(map[subjects.Code]*times)
		for _, c := range append(subjects.Codes(), subjects.CodeInfo{Code: wire.OK}) {
			code := c.Code.String()
			t := &times{desc: requestSeconds.desc(label, code), always: c.Code == wire.OK}
			m.registry.MustRegister(t, requestsTotal.read(func() float64 { return float64(t.count()) }, label, code))
			r.codes[c.Code] = t
		}
		r.ok = r.codes[wire.OK]
		m.registry.MustRegister(idsTotal.read(func() float64 { return float64(r.ids.Load()) }, label))
	}
	m.registry.MustRegister(waits)
}

// of returns the metrics of a mode. It uses no map, since it is called for each answer.
func (m *Metrics) of(mode worker.Mode) *requests {
	switch mode {
	case worker.Segment:
		return &m.segment
	case worker.Snowflake:
		return &m.snowflake
	case worker.Relay:
		return &m.relay
	}
	return &m.tags
}

// Answered counts an answer. It is part of the warm path: it takes no lock and allocates nothing.
func (m *Metrics) Answered(a worker.Answer) {
	r := m.of(a.Mode)
	took := r.ok
	if a.Code != wire.OK {
		took = r.codes[a.Code]
	}
	if took != nil {
		took.observe(a.Took)
	}
	r.ids.Add(int64(a.IDs))
	if a.Parked {
		r.waits.Observe(a.Took.Seconds())
	}
}

// Alarmed counts an alarm.
func (m *Metrics) Alarmed(kind wire.Alarm) { m.alarms.WithLabelValues(string(kind)).Inc() }

// AlarmHeldBack counts an alarm that was not raised, since a similar one was raised just before.
func (m *Metrics) AlarmHeldBack(kind wire.Alarm) { m.heldBack.WithLabelValues(string(kind)).Inc() }

// Loaded counts a load of a range. A load of a tag that does not exist is not counted as an error: anyone may request
// such a tag.
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
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

func handler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// registerProcess adds the metrics of the Go runtime, the process and the version.
func registerProcess(r *prometheus.Registry, version string) {
	r.MustRegister(buildInfo.read(func() float64 { return 1 }, version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// The bounds of the buckets are powers of two, in nanoseconds: from about 1 us to about 4 s.
const (
	leastBits = 10
	mostBits  = 32
)

// A times is a histogram of durations. Counting one costs two atomic additions, to adjacent memory for short times. It
// is safe for concurrent use.
type times struct {
	sum atomic.Int64 // ns
	// Bucket n counts times above 2^(leastBits+n-1) and up to 2^(leastBits+n) ns; the first also counts shorter ones,
	// and the last longer ones.
	buckets [mostBits - leastBits + 2]atomic.Uint64
	desc    *prometheus.Desc
	always  bool // exposed even before a time is counted
}

func (t *times) observe(d time.Duration) {
	t.sum.Add(int64(max(d, 0)))
	n := bits.Len64(uint64(max(d, 1) - 1))
	t.buckets[min(max(n, leastBits), mostBits+1)-leastBits].Add(1)
}

func (t *times) count() (all uint64) {
	for n := range t.buckets {
		all += t.buckets[n].Load()
	}
	return all
}

// Describe implements [prometheus.Collector].
func (t *times) Describe(descs chan<- *prometheus.Desc) { descs <- t.desc }

// Collect implements [prometheus.Collector].
func (t *times) Collect(series chan<- prometheus.Metric) {
	below := make(map[float64]uint64)
	var count uint64
	for n := range t.buckets {
		if count += t.buckets[n].Load(); n < len(t.buckets)-1 {
			below[time.Duration(1<<(leastBits+n)).Seconds()] = count
		}
	}
	if count == 0 && !t.always {
		return
	}
	sum := time.Duration(t.sum.Load()).Seconds()
	series <- prometheus.MustNewConstHistogram(t.desc, count, sum, below)
}
