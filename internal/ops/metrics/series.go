package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// A SeriesInfo describes one metric. The collectors and docs/reference.md are made from it.
type SeriesInfo struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels string // names, separated by ", "; "" for none
	Help   string
}

// Types of metrics.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

var (
	idsTotal = SeriesInfo{
		Name: "natsid_ids_total", Type: counter, Labels: "mode",
		Help: "IDs issued, by mode.",
	}
	requestsTotal = SeriesInfo{
		Name: "natsid_requests_total", Type: counter, Labels: "mode, code",
		Help: "Requests answered, by mode and code; 200 is success.",
	}
	requestSeconds = SeriesInfo{
		Name: "natsid_request_seconds", Type: histogram, Labels: "mode, code",
		Help: "How long requests took from their delivery to this worker to its answer, by mode and code. " +
			"A code that was never sent has no series.",
	}
	waitSeconds = SeriesInfo{
		Name: "natsid_wait_seconds", Type: histogram, Labels: "mode",
		Help: "How long requests waited that could not be answered from memory.",
	}
	waitingRequests = SeriesInfo{
		Name: "natsid_waiting_requests", Type: gauge, Labels: "mode",
		Help: "Requests that wait now, for a range or for the clock.",
	}
	lagSeconds = SeriesInfo{
		Name: "natsid_lag_seconds", Type: gauge, Labels: "mode",
		Help: "How long requests wait for their turn, in the NATS server and in this worker; 0 while few arrive. " +
			"A worker that is late leaves the queue group.",
	}
	loadSeconds = SeriesInfo{
		Name: "natsid_segment_load_seconds", Type: histogram, Labels: "outcome",
		Help: "How long loads of a range took, by outcome: ok, error, or unknown if there is no such tag.",
	}
	segmentTags = SeriesInfo{
		Name: "natsid_segment_tags", Type: gauge,
		Help: "Tags that hold ranges in memory.",
	}
	segmentSecondsLeft = SeriesInfo{
		Name: "natsid_segment_seconds_left", Type: gauge,
		Help: "How long the tag that runs out first lasts at its present speed without another load; " +
			"+Inf if none is in use.",
	}
	tagIDs = SeriesInfo{
		Name: "natsid_tag_ids_total", Type: counter, Labels: "tag",
		Help: "IDs issued of a tag, for the busiest tags alone (`--metrics-tags`).",
	}
	tagLeft = SeriesInfo{
		Name: "natsid_tag_ids_left", Type: gauge, Labels: "tag",
		Help: "IDs of a tag in memory, for the busiest tags alone.",
	}
	tagSecondsLeft = SeriesInfo{
		Name: "natsid_tag_seconds_left", Type: gauge, Labels: "tag",
		Help: "How long those IDs last at the present speed, for the busiest tags alone; +Inf if none is used.",
	}
	tagStep = SeriesInfo{
		Name: "natsid_tag_step_ids", Type: gauge, Labels: "tag",
		Help: "How many IDs of a tag the next load reserves at least, for the busiest tags alone.",
	}
	tagLoads = SeriesInfo{
		Name: "natsid_tag_loads_total", Type: counter, Labels: "tag",
		Help: "Loads of a tag that succeeded, for the busiest tags alone.",
	}
	tagErrors = SeriesInfo{
		Name: "natsid_tag_load_errors_total", Type: counter, Labels: "tag",
		Help: "Loads of a tag that failed, for the busiest tags alone.",
	}
	tagWaits = SeriesInfo{
		Name: "natsid_tag_waits_total", Type: counter, Labels: "tag",
		Help: "Requests for IDs of a tag that waited for a load, for the busiest tags alone.",
	}
	alarmsTotal = SeriesInfo{
		Name: "natsid_alarms_total", Type: counter, Labels: "kind",
		Help: "Alarms raised, by kind.",
	}
	alarmsHeldBack = SeriesInfo{
		Name: "natsid_alarms_held_back_total", Type: counter, Labels: "kind",
		Help: "Alarms that were not raised at once, since one of the kind about the same thing had been raised in " +
			"the minute before.",
	}
	ready = SeriesInfo{
		Name: "natsid_ready", Type: gauge, Labels: "mode",
		Help: "1 while the mode can issue IDs.",
	}
	outOfGroup = SeriesInfo{
		Name: "natsid_out_of_group", Type: gauge, Labels: "mode, reason",
		Help: "1 while the worker is out of the queue group of the mode for the reason; there can be several. " +
			"/readyz and the log say the cause.",
	}
	windowSeconds = SeriesInfo{
		Name: "natsid_snowflake_window_seconds", Type: gauge,
		Help: "How long snowflakes can be issued without another renewal; 0 without a worker number.",
	}
	workerNumber = SeriesInfo{
		Name: "natsid_worker_number", Type: gauge,
		Help: "The worker number; -1 if none is held.",
	}
	secondRegistry = SeriesInfo{
		Name: "natsid_second_registry", Type: gauge,
		Help: "1 while another registry is heard, or this worker's is out for one.",
	}
	clockOffset = SeriesInfo{
		Name: "natsid_clock_offset_seconds", Type: gauge,
		Help: "This worker's clock minus the registry's, as of the last heartbeat.",
	}
	timeEnds = SeriesInfo{
		Name: "natsid_snowflake_time_ends_timestamp_seconds", Type: gauge,
		Help: "When the time field of the layout is full.",
	}
	leafRequests = SeriesInfo{
		Name: "natsid_leaf_requests_total", Type: counter, Labels: "address",
		Help: "HTTP requests on Leaf's paths by the address of their callers; those after the first 1,000 are " +
			"`others`.",
	}
	buildInfo = SeriesInfo{
		Name: "natsid_build_info", Type: gauge, Labels: "version",
		Help: "Always 1; the label is the version.",
	}
)

// Series returns all metrics of natsid, without those of the Go runtime and of
// the process.
func Series() []SeriesInfo {
	return []SeriesInfo{
		ready, outOfGroup, alarmsTotal, alarmsHeldBack, requestsTotal, idsTotal, requestSeconds, lagSeconds,
		waitingRequests, waitSeconds,
		segmentSecondsLeft, segmentTags, loadSeconds,
		tagIDs, tagLeft, tagSecondsLeft, tagStep, tagLoads, tagErrors, tagWaits,
		windowSeconds, workerNumber, clockOffset, secondRegistry, timeEnds, leafRequests, buildInfo,
	}
}

func (s SeriesInfo) labels() []string {
	if s.Labels == "" {
		return nil
	}
	return strings.Split(s.Labels, ", ")
}

func (s SeriesInfo) counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.labels())
}

// histograms returns histograms of 12 buckets, each twice as wide as the one before; first is the width of the first
// bucket, in seconds.
func (s SeriesInfo) histograms(first float64) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: s.Name, Help: s.Help, Buckets: prometheus.ExponentialBuckets(first, 2, 12)}
	return prometheus.NewHistogramVec(opts, s.labels())
}

// desc describes the series with these values of its labels.
func (s SeriesInfo) desc(values ...string) *prometheus.Desc {
	return prometheus.NewDesc(s.Name, s.Help, nil, s.with(values))
}

// ofEach describes the series, whose label values come with each sample.
func (s SeriesInfo) ofEach() *prometheus.Desc {
	return prometheus.NewDesc(s.Name, s.Help, s.labels(), nil)
}

func (s SeriesInfo) valueType() prometheus.ValueType {
	if s.Type == counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// read returns the series with these values of its labels; f is called at each scrape.
func (s SeriesInfo) read(f func() float64, values ...string) prometheus.Collector {
	opts := prometheus.Opts{Name: s.Name, Help: s.Help, ConstLabels: s.with(values)}
	if s.Type == counter {
		return prometheus.NewCounterFunc(prometheus.CounterOpts(opts), f)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts), f)
}

func (s SeriesInfo) with(values []string) prometheus.Labels {
	names := s.labels()
	if len(names) != len(values) {
		panic("metrics: " + s.Name + " has the labels " + s.Labels + ", not " + strings.Join(values, ", "))
	}
	labels := make(prometheus.Labels)
	for i, value := range values {
		labels[names[i]] = value
	}
	return labels
}
