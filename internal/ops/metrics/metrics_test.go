package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	modes = []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags}
	codes = []subjects.Code{
		wire.OK, subjects.BadRequest, subjects.NotFound, subjects.Conflict, subjects.UsedUp, subjects.TooMany,
		subjects.Internal, subjects.Unavailable,
	}
)

// A served thing has metrics.
type served interface{ Handler() http.Handler }

// body returns the exposition.
func body(t *testing.T, m served) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// scrape returns the exposition's values by series, such as
// `natsid_ids_total{mode="segment"}`.
func scrape(t *testing.T, m served) map[string]float64 {
	t.Helper()
	series := make(map[string]float64)
	for line := range strings.Lines(body(t, m)) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		series[line[:at]] = value
	}
	return series
}

// want checks values of a scrape.
func want(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v (exposed: %v), want %v", name, v, ok, value)
		}
	}
}

// sources returns the sources of a process that has issued nothing yet.
func sources(t *testing.T) (s metrics.Sources, store *segmenttest.Faulty) {
	t.Helper()
	store = &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	if _, err := store.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	allocator := segment.New(segment.Config{Store: store, Deadline: time.Second})
	t.Cleanup(allocator.Close)
	now := func() int64 { return time.Now().UnixMilli() }
	return metrics.Sources{
		Segments:   allocator,
		Snowflakes: issuer.New(time.Second, 10, now),
		Keeper: workerid.New(workerid.Config{
			Registry: &workeridtest.Fake{Memory: new(workeridtest.Memory)}, Layout: snowflake.Leaf,
			Horizon: time.Minute, MaxClockSkew: time.Millisecond,
			Now: now, Use: func(*snowflake.Generator) {}, Alarm: func(workerid.Alarm, string) {},
		}),
		Layout: snowflake.Leaf,
		Lag: func(mode worker.Mode) time.Duration {
			return map[worker.Mode]time.Duration{worker.Snowflake: time.Second}[mode]
		},
		Outs: func(mode worker.Mode) []worker.Out {
			if mode == worker.Snowflake {
				return []worker.Out{{Reason: worker.Number, Why: errors.New("no number")}}
			}
			return nil
		},
		Ready: func() map[string]error {
			return map[string]error{"segment": nil, "snowflake": errors.New("no number")}
		},
		Version: "1.2.3",
		Second:  func() bool { return false },
	}, store
}

func TestTheTableOfSeriesIsWhatIsExposed(t *testing.T) {
	m := metrics.New()
	s, _ := sources(t)
	m.Watch(s)
	_, err := segmenttest.Take(t.Context(), s.Segments, "order", 1) // a tag has series once it was used
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes { // a histogram is there with its first value
		m.Answered(worker.Answer{Mode: mode, Code: wire.OK, Parked: true})
	}
	check(t, m, metrics.Series())
	stamping := metrics.StageSource{From: "A", To: "B", Version: "1.2.3", Progress: stage.New(stage.Config{}).Progress}
	check(t, stamping, metrics.StageSeries())
}

// check checks that just these metrics are exposed, as they are described.
func check(t *testing.T, m served, series []metrics.SeriesInfo) {
	t.Helper()
	got := exposed(t, m)
	for _, info := range series {
		labels := strings.Split(info.Labels, ", ")
		slices.Sort(labels) // as they are exposed
		if got[info.Name] != info.Type+" "+strings.Join(labels, ", ")+" "+info.Help {
			t.Errorf("%+v is exposed as %q", info, got[info.Name])
		}
		delete(got, info.Name)
	}
	for name := range got {
		if strings.HasPrefix(name, "natsid_") {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if got[name] == "" {
			t.Errorf("%s is not exposed", name)
		}
	}
}

// exposed returns the type, labels and help of each metric, by name.
func exposed(t *testing.T, m served) map[string]string {
	t.Helper()
	types, helps, labels := map[string]string{}, map[string]string{}, map[string]string{}
	meta := regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)\n$`)
	sample := regexp.MustCompile(`^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `)
	for line := range strings.Lines(body(t, m)) {
		if found := meta.FindStringSubmatch(line); found != nil {
			map[string]map[string]string{"HELP": helps, "TYPE": types}[found[1]][found[2]] = found[3]
			continue
		}
		found := sample.FindStringSubmatch(line)
		names := regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(found[2], -1)
		labels[found[1]] = ""
		for _, name := range names {
			if name[1] != "le" {
				labels[found[1]] = strings.TrimPrefix(labels[found[1]]+", "+name[1], ", ")
			}
		}
	}
	for name, help := range helps {
		helps[name] = types[name] + " " + labels[name] + " " + help
	}
	return helps
}

func TestEventsThatHaveNotHappenedAreZeroNotAbsent(t *testing.T) {
	m := metrics.New()
	got := scrape(t, m)
	for _, a := range wire.Alarms() {
		series := fmt.Sprintf(`natsid_alarms_total{kind="%s"}`, a.Kind)
		want(t, got, map[string]float64{series: 0})
		m.Alarmed(a.Kind)
		want(t, scrape(t, m), map[string]float64{series: 1})
	}
	for _, mode := range modes {
		want(t, got, map[string]float64{
			fmt.Sprintf(`natsid_ids_total{mode="%s"}`, mode):          0,
			fmt.Sprintf(`natsid_wait_seconds_count{mode="%s"}`, mode): 0,
		})
		for _, code := range codes {
			want(t, got, map[string]float64{fmt.Sprintf(`natsid_requests_total{code="%d",mode="%s"}`, code, mode): 0})
		}
	}
	want(t, got, map[string]float64{
		`natsid_segment_load_seconds_count{outcome="ok"}`:    0,
		`natsid_segment_load_seconds_count{outcome="error"}`: 0,

		`natsid_segment_load_seconds_count{outcome="unknown"}`: 0,
	})
}

func TestAnswersAreCountedByModeAndCode(t *testing.T) {
	m := metrics.New()
	for _, mode := range modes {
		for i, code := range codes {
			for range i + 1 {
				m.Answered(worker.Answer{Mode: mode, Code: code})
			}
		}
	}
	m.Answered(worker.Answer{Mode: worker.Segment, Code: wire.OK, IDs: 100})
	m.Answered(worker.Answer{
		Mode: worker.Segment, Code: wire.OK, IDs: 1, Parked: true, Took: 250 * time.Millisecond,
	})
	m.Answered(worker.Answer{
		Mode: worker.Snowflake, Code: subjects.Unavailable, Parked: true, Took: 1500 * time.Millisecond,
	})
	got := scrape(t, m)
	for i, code := range codes {
		series := fmt.Sprintf(`natsid_requests_total{code="%d",mode="tags"}`, code)
		want(t, got, map[string]float64{series: float64(i + 1)})
	}
	want(t, got, map[string]float64{
		`natsid_ids_total{mode="segment"}`:                           101,
		`natsid_ids_total{mode="snowflake"}`:                         0,
		`natsid_requests_total{code="200",mode="segment"}`:           1 + 2,
		`natsid_requests_total{code="503",mode="snowflake"}`:         8 + 1,
		`natsid_wait_seconds_count{mode="segment"}`:                  1,
		`natsid_wait_seconds_sum{mode="segment"}`:                    0.25,
		`natsid_wait_seconds_bucket{mode="segment",le="0.128"}`:      0,
		`natsid_wait_seconds_bucket{mode="segment",le="0.256"}`:      1,
		`natsid_wait_seconds_sum{mode="snowflake"}`:                  1.5,
		`natsid_wait_seconds_bucket{mode="snowflake",le="2.048"}`:    1,
		`natsid_wait_seconds_bucket{mode="snowflake",le="+Inf"}`:     1,
		`natsid_wait_seconds_count{mode="tags"}`:                     0,
		`natsid_segment_load_seconds_count{outcome="ok"}`:            0,
		`natsid_segment_load_seconds_bucket{outcome="ok",le="+Inf"}`: 0,
	})
}

func TestEveryRequestIsTimedByModeAndCode(t *testing.T) {
	m := metrics.New()
	const ms = time.Millisecond
	for _, took := range []time.Duration{-1, 0, 1023, 1024, 3 * ms, 1500 * ms, time.Minute} {
		m.Answered(worker.Answer{Mode: worker.Segment, Code: wire.OK, Took: took})
		m.Answered(worker.Answer{Mode: worker.Segment, Code: wire.OK, Took: took, Parked: true})
	}
	m.Answered(worker.Answer{Mode: worker.Segment, Code: subjects.Unavailable, Took: 3 * ms})
	got := scrape(t, m)
	want(t, got, map[string]float64{
		`natsid_request_seconds_bucket{code="200",mode="segment",le="1.024e-06"}`:   8,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="2.048e-06"}`:   8,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="0.002097152"}`: 8,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="0.004194304"}`: 10,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="1.073741824"}`: 10,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="2.147483648"}`: 12,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="4.294967296"}`: 12,
		`natsid_request_seconds_bucket{code="200",mode="segment",le="+Inf"}`:        14,
		`natsid_request_seconds_count{code="200",mode="segment"}`:                   14,
		`natsid_request_seconds_sum{code="200",mode="segment"}`:                     2 * 61.503002047,
		`natsid_request_seconds_count{code="503",mode="segment"}`:                   1,
		`natsid_request_seconds_count{code="200",mode="snowflake"}`:                 0,
		`natsid_request_seconds_count{code="200",mode="tags"}`:                      0,
	})
	if _, exposed := got[`natsid_request_seconds_count{code="404",mode="segment"}`]; exposed {
		t.Error("a code that was never sent has the 25 series of a histogram")
	}
}

func TestCountingAnAnswerAllocatesNothing(t *testing.T) {
	m := metrics.New()
	a := worker.Answer{Mode: worker.Snowflake, Code: wire.OK, IDs: 1, Took: time.Microsecond}
	if n := testing.AllocsPerRun(100, func() { m.Answered(a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLoadsAreTimedByOutcome(t *testing.T) {
	m := metrics.New()
	m.Loaded("order", 2*time.Millisecond, nil)
	m.Loaded("order", 3*time.Millisecond, nil)
	m.Loaded("other", time.Second, errors.New("away"))
	for _, err := range []error{segment.ErrUnknownTag, segment.ErrDisabled, &segment.NameError{}} { // 404
		m.Loaded("none", time.Millisecond, fmt.Errorf("store: %w", err))
	}
	got := scrape(t, m)
	want(t, got, map[string]float64{
		`natsid_segment_load_seconds_count{outcome="ok"}`:    2,
		`natsid_segment_load_seconds_sum{outcome="ok"}`:      0.005,
		`natsid_segment_load_seconds_count{outcome="error"}`: 1,
		`natsid_segment_load_seconds_sum{outcome="error"}`:   1,

		`natsid_segment_load_seconds_count{outcome="unknown"}`: 3,
	})
	for series := range got {
		if strings.Contains(series, "order") {
			t.Errorf("%s: a tag is a label, and there may be 100,000 of them", series)
		}
	}
}

func TestAProcessThatHoldsNothingYet(t *testing.T) {
	m := metrics.New()
	s, _ := sources(t)
	m.Watch(s)
	want(t, scrape(t, m), map[string]float64{
		`natsid_ready{mode="segment"}`:                          1,
		`natsid_out_of_group{mode="segment",reason="number"}`:   0,
		`natsid_out_of_group{mode="snowflake",reason="number"}`: 1,
		`natsid_ready{mode="snowflake"}`:                        0,
		`natsid_lag_seconds{mode="segment"}`:                    0,
		`natsid_lag_seconds{mode="snowflake"}`:                  1,
		`natsid_waiting_requests{mode="segment"}`:               0,
		`natsid_waiting_requests{mode="snowflake"}`:             0,
		`natsid_segment_tags`:                                   0,
		`natsid_segment_seconds_left`:                           math.Inf(1),
		`natsid_snowflake_window_seconds`:                       0,
		`natsid_worker_number`:                                  -1,
		`natsid_clock_offset_seconds`:                           0,
		`natsid_snowflake_time_ends_timestamp_seconds`:          3487858230, // 2080-07-10
		`natsid_build_info{version="1.2.3"}`:                    1,
	})
}

// promtool check metrics looks with this linter.
func TestTheLinterOfPrometheusFindsNothing(t *testing.T) {
	m := metrics.New()
	s, _ := sources(t)
	m.Watch(s)
	if _, err := segmenttest.Take(t.Context(), s.Segments, "order", 5); err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		for _, code := range codes {
			m.Answered(worker.Answer{Mode: mode, Code: code, Parked: true})
		}
	}
	problems, err := promlint.New(strings.NewReader(body(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestAProcessThatIssuesShowsItsStores(t *testing.T) {
	m := metrics.New()
	s, store := sources(t)
	m.Watch(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Keeper.Run(ctx) }()
	wait.Until(t, "a number is held", func() bool { return s.Keeper.Status().Held })
	if _, err := segmenttest.Take(ctx, s.Segments, "order", 5); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, m)
	want(t, got, map[string]float64{
		`natsid_worker_number`: float64(s.Keeper.Status().Number),
		`natsid_segment_tags`:  1,
	})
	if left := got[`natsid_snowflake_window_seconds`]; left < 30 || left > 61 {
		t.Errorf("the window lasts %v s, want about a minute", left)
	}
	if left := got[`natsid_segment_seconds_left`]; left <= 0 || math.IsInf(left, 0) {
		t.Errorf("the ranges last %v s", left)
	}
	store.OnLoad(func(ctx context.Context, _ string, _ func() (segment.Range, error)) (segment.Range, error) {
		<-ctx.Done()
		return segment.Range{}, ctx.Err()
	})
	answered := make(chan error, 3)
	for range 3 {
		if err := s.Segments.Park("order", 1000, func(_ []segment.Range, err error) { answered <- err }); err != nil {
			t.Fatal(err)
		}
	}
	want(t, scrape(t, m), map[string]float64{`natsid_waiting_requests{mode="segment"}`: 3})
	s.Segments.Close()
	for range 3 {
		<-answered
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	want(t, scrape(t, m), map[string]float64{
		`natsid_worker_number`:                    -1,
		`natsid_snowflake_window_seconds`:         0,
		`natsid_waiting_requests{mode="segment"}`: 0,
	})
}

func TestAStageSaysWhatItDoes(t *testing.T) {
	const of = `{from="ORDERS",to="STAMPED"}`
	p := stage.Progress{Role: stage.Copying, Position: 70, Behind: 5, Copied: 20, Batches: 3, Fenced: 1, Retries: 2,
		HintFailures: 4}
	m := metrics.StageSource{From: "ORDERS", To: "STAMPED", Progress: func() stage.Progress { return p }}
	want(t, scrape(t, m), map[string]float64{
		"natsid_stamp_ready" + of: 1, "natsid_stamp_position" + of: 70, "natsid_stamp_behind" + of: 5,
		"natsid_stamp_copied_total" + of: 20, "natsid_stamp_batches_total" + of: 3, "natsid_stamp_fenced_total" + of: 1,
		"natsid_stamp_retries_total" + of: 2, "natsid_stamp_hint_failures_total" + of: 4,
		`natsid_stamp_role{from="ORDERS",role="copying",to="STAMPED"}`: 1,
		`natsid_stamp_role{from="ORDERS",role="standby",to="STAMPED"}`: 0,
	})
	p.Role, p.Why = stage.Retrying, "no answer"
	want(t, scrape(t, m), map[string]float64{
		"natsid_stamp_ready" + of:                                       0,
		`natsid_stamp_role{from="ORDERS",role="copying",to="STAMPED"}`:  0,
		`natsid_stamp_role{from="ORDERS",role="retrying",to="STAMPED"}`: 1,
	})
}
