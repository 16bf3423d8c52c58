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

func counter(name, labels, help string) SeriesInfo { return SeriesInfo{name, "counter", labels, help} }

func gauge(name, labels, help string) SeriesInfo { return SeriesInfo{name, "gauge", labels, help} }

func histogram(name, labels, help string) SeriesInfo {
	return SeriesInfo{name, "histogram", labels, help}
}

var (
	idsTotal = counter("natsid_ids_total", "mode",
		"IDs issued. Those of relay are counted as segment by the worker that relayed, too.")
	requestsTotal = counter("natsid_requests_total", "mode, code",
		"Requests answered; code 200 is success.")
	requestSeconds = histogram("natsid_request_seconds", "mode, code",
		"Time from a request's delivery to this worker to its answer. A code that was never sent has no series.")
	waitSeconds = histogram("natsid_wait_seconds", "mode",
		"How long requests waited that could not be answered from memory.")
	waitingRequests = gauge("natsid_waiting_requests", "mode",
		"Requests that wait now, for a range or for the clock.")
	lagSeconds = gauge("natsid_lag_seconds", "mode",
		"How long requests wait for their turn, in the NATS server and in this worker; 0 while few arrive.")
	loadSeconds = histogram("natsid_segment_load_seconds", "outcome",
		"How long loads of a range took; unknown if there is no such tag, otherwise ok or error.")
	segmentTags        = gauge("natsid_segment_tags", "", "Tags that hold ranges in memory.")
	segmentSecondsLeft = gauge("natsid_segment_seconds_left", "",
		"How long the tag that runs out first lasts at its present speed; +Inf if none is in use.")
	tagIDs = counter("natsid_tag_ids_total", "tag",
		"IDs issued of a tag. Only the 20 busiest tags have series.")
	tagSecondsLeft = gauge("natsid_tag_seconds_left", "tag",
		"How long a busy tag's IDs in memory last at the present speed; +Inf if none is used.")
	tagErrors = counter("natsid_tag_load_errors_total", "tag",
		"Failed loads of a busy tag.")
	tagWaits = counter("natsid_tag_waits_total", "tag",
		"Requests for IDs of a busy tag that waited for a load.")
	alarmsTotal    = counter("natsid_alarms_total", "kind", "Alarms raised.")
	alarmsHeldBack = counter("natsid_alarms_held_back_total", "kind",
		"Alarms not raised at once, since one of the kind about the same thing was raised in the minute before.")
	ready      = gauge("natsid_ready", "mode", "1 while the mode can issue IDs.")
	outOfGroup = gauge("natsid_out_of_group", "mode, reason",
		"1 while the worker is out of the mode's queue group for this reason; there can be several. "+
			"/readyz and the log say the cause.")
	windowSeconds = gauge("natsid_snowflake_window_seconds", "",
		"How long snowflakes can be issued without another renewal; 0 without a worker number.")
	workerNumber   = gauge("natsid_worker_number", "", "The worker number; -1 if none is held.")
	secondRegistry = gauge("natsid_second_registry", "",
		"1 while the registry is stopped since another one serves the same subjects.")
	clockOffset = gauge("natsid_clock_offset_seconds", "",
		"This worker's clock minus the registry's, as of the last heartbeat.")
	timeEnds = gauge("natsid_snowflake_time_ends_timestamp_seconds", "",
		"When the time field of the layout is full.")
	buildInfo = gauge("natsid_build_info", "version", "Always 1; the label is the version.")
)

// Series returns all metrics of natsid, without those of the Go runtime and the process.
func Series() []SeriesInfo {
	return []SeriesInfo{
		ready, outOfGroup, alarmsTotal, alarmsHeldBack, requestsTotal, idsTotal, requestSeconds, lagSeconds,
		waitingRequests, waitSeconds,
		segmentSecondsLeft, segmentTags, loadSeconds,
		tagIDs, tagSecondsLeft, tagErrors, tagWaits,
		windowSeconds, workerNumber, clockOffset, secondRegistry, timeEnds, buildInfo,
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

// desc returns the description of the series for these values of its labels.
func (s SeriesInfo) desc(values ...string) *prometheus.Desc {
	return prometheus.NewDesc(s.Name, s.Help, nil, s.with(values))
}

// read returns a collector of the series with the given label values. It calls f at each scrape.
func (s SeriesInfo) read(f func() float64, values ...string) prometheus.Collector {
	opts := prometheus.Opts{Name: s.Name, Help: s.Help, ConstLabels: s.with(values)}
	if s.Type == "counter" {
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
