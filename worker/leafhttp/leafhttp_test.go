package leafhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/worker/leafhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// patience is the deadline where a slow machine must not meet it.
const patience = 30 * time.Second

// A rig is a server with its cores.
type rig struct {
	*testing.T
	url     string
	server  *leafhttp.Server
	store   *segmenttest.Faulty
	issuer  *snowflake.Issuer
	gate    policy.Gate
	reasons worker.Reasons
	given   atomic.Int64 // answers with IDs
	called  atomic.Int64 // requests from 127.0.0.1
	log     natstest.Buffer
	served  chan error // what Serve returned
	stop    context.CancelFunc
	client  *http.Client
}

const number = 9 // the worker number

func start(t *testing.T, layout snowflake.Layout, deadline time.Duration) *rig {
	t.Helper()
	return startLeaving(t, layout, deadline, 0)
}

// startLeaving starts a server that lets idle connections live for so long at a stop.
func startLeaving(t *testing.T, layout snowflake.Layout, deadline, leave time.Duration) *rig {
	t.Helper()
	r := &rig{
		T: t, store: &segmenttest.Faulty{Store: new(segmenttest.Memory)}, served: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}},
	}
	r.create("order", 1000)
	r.create("order.eu", 1000)
	segments := segment.New(segment.Config{Store: r.store, Deadline: deadline, LoadTimeout: deadline / 2})
	r.issuer = snowflake.NewIssuer(deadline, 100, func() int64 { return time.Now().UnixMilli() })
	now := time.Now()
	g, err := snowflake.NewGenerator(layout, number, now.UnixMilli(), now.Add(time.Hour).UnixMilli(), 0)
	if err != nil {
		t.Fatal(err)
	}
	r.issuer.Use(g)
	direct := worker.NewDirect(worker.Config{
		Segments: segments, Store: r.store, Snowflakes: r.issuer, Layout: layout, MaxBatch: 5000, Deadline: deadline,
		Gate: &r.gate, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Observe: func(a worker.Answer) {
			if a.Code == subjects.OK {
				r.given.Add(1)
			}
		},
		Reasons: &r.reasons,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := leafhttp.New(leafhttp.Config{
		IDs: direct, Layout: layout, Deadline: deadline, Log: slog.New(slog.DiscardHandler),
		Called: func(address string) (count func()) {
			return func() {
				if address == "127.0.0.1" {
					r.called.Add(1)
				}
			}
		},
	})
	s.Leave(leave)
	r.server = s
	r.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.served <- s.Serve(ctx, l); segments.Close(); close(r.served) }()
	t.Cleanup(func() {
		cancel()
		r.client.CloseIdleConnections()
		for range r.served {
		}
	})
	return r
}

func (r *rig) create(tag string, step int64) {
	r.Helper()
	if _, err := r.store.Create(r.Context(), segment.Tag{Name: tag, Step: step, MaxID: 1}, false); err != nil {
		r.Fatal(err)
	}
}

// An answer is one over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

func (r *rig) ask(method, path string) (a answer, err error) {
	q, err := http.NewRequest(method, r.url+path, nil)
	if err != nil {
		return a, err
	}
	resp, err := r.client.Do(q)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

func (r *rig) get(path string) answer {
	r.Helper()
	a, err := r.ask("GET", path)
	if err != nil {
		r.Fatal(err)
	}
	return a
}

func TestIDsArePlainText(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	for i, method := range []string{"GET", "POST", "PUT", "DELETE"} { // Leaf names no method
		a, err := r.ask(method, "/api/segment/get/order")
		if want := strconv.Itoa(i + 1); err != nil || a.status != 200 || a.body != want {
			t.Errorf("%s: %+v %v, want %s", method, a, err, want)
		}
		if kind := strings.ToLower(a.header.Get("Content-Type")); kind != "text/plain; charset=utf-8" {
			t.Errorf("%s is of type %s", method, kind)
		}
	}
	for _, key := range []string{"any", "a.b", "1/2", "order", "%20"} {
		a := r.get("/api/snowflake/get/" + key)
		id, err := strconv.ParseInt(a.body, 10, 64)
		p, no := snowflake.Leaf.Decode(id)
		if a.status != 200 || err != nil || no != nil || p.Worker != number {
			t.Errorf("snowflake of %q: %+v", key, a)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"/api/segment/get/order/", "5"}, // Spring ignores the slash
		{"/api/segment/get/order.eu", "1"},
		{"/api/segment/get/order?n=10", "6-15"},
		{"/api/segment/get/order?n=", "16"},
		{"/api/segment/get/order?other=1", "17"},
	} {
		if a := r.get(c.path); a.status != 200 || a.body != c.want {
			t.Errorf("%s: %+v, want %s", c.path, a, c.want)
		}
	}
}

// failed is an error of Spring Boot.
type failed struct {
	Timestamp int64
	Status    int
	Error     string
	Exception string
	Message   string
	Path      string
}

func (r *rig) wantFailure(path string, a answer, want failed) {
	r.Helper()
	var got failed
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		r.Fatalf("%s: %d %q: %v", path, a.status, a.body, err)
	}
	if age := time.Since(time.UnixMilli(got.Timestamp)); age < -time.Minute || age > time.Minute {
		r.Errorf("%s: timestamp %d", path, got.Timestamp)
	}
	got.Timestamp = 0
	want.Path, _, _ = strings.Cut(path, "?")
	if a.status != want.Status || got != want {
		r.Errorf("%s: %d %+v, want %+v", path, a.status, got, want)
	}
	if kind := a.header.Get("Content-Type"); kind != "application/json;charset=UTF-8" {
		r.Errorf("%s is of type %s", path, kind)
	}
	retry := a.status == 503 || a.status == 429
	if after := a.header.Get("Retry-After"); retry != (after != "") || after == "0" {
		r.Errorf("%s: %d with Retry-After %q", path, a.status, after)
	}
}

// leafFailure is Leaf's error with a number.
func leafFailure(status, number int) failed {
	return failed{
		Status: status, Error: http.StatusText(status),
		Exception: "com.sankuai.inf.leaf.server.exception.LeafServerException",
		Message:   fmt.Sprintf("Result{id=%d, status=EXCEPTION}", number),
	}
}

func TestFailuresAreThoseOfLeaf(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.gate.Set(policy.Rules{"order.eu": {Rate: 1}})
	r.gate.SetWorkers(1)
	argument := failed{Status: 400, Error: "Bad Request", Exception: "java.lang.IllegalArgumentException"}
	notRead := func(count string) failed {
		f := argument
		const want = "the count is %q, want empty for one ID or a decimal 1..5000 without leading zero"
		f.Message = fmt.Sprintf(want, count)
		return f
	}
	batch := notRead("5001")
	for _, c := range []struct {
		path string
		want failed
	}{
		{"/api/segment/get/none", leafFailure(500, -2)},
		{"/api/segment/get/a*b", leafFailure(500, -2)},
		{"/api/segment/get/" + strings.Repeat("x", 129), leafFailure(500, -2)},
		{"/api/segment/get/order?n=5001", batch},
		{"/api/snowflake/get/any?n=5001", batch},
		{"/api/segment/get/order?n=5;m=1", notRead("n=5;m=1")},
		{"/api/snowflake/get/any?n=5%zz", notRead("n=5%zz")},
		{"/api/segment/get/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/api/snowflake/get/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/decodeSnowflakeId", failed{
			Status: 400, Error: "Bad Request",
			Exception: "org.springframework.web.bind.MissingServletRequestParameterException",
			Message:   "Required String parameter 'snowflakeId' is not present",
		}},
	} {
		r.wantFailure(c.path, r.get(c.path), c.want)
	}
	const limited = "/api/segment/get/order.eu?n=50"
	a := r.get(limited)
	for until := time.Now().Add(time.Minute); a.status == 200 && time.Now().Before(until); {
		a = r.get(limited)
	}
	r.wantFailure(limited, a, leafFailure(429, -3))

	why := fmt.Errorf("the marks went back")
	r.reasons.Set(worker.Stopped, why, worker.Segment, worker.Snowflake)
	for _, path := range []string{"/api/segment/get/order", "/api/snowflake/get/any"} {
		r.wantFailure(path, r.get(path), leafFailure(503, -1))
	}
	r.reasons.Clear(worker.Stopped, worker.Segment, worker.Snowflake)
	r.issuer.Use(nil)
	r.wantFailure("/api/snowflake/get/any", r.get("/api/snowflake/get/any"), leafFailure(503, -1))
}

func TestALateRequestIsNotReady(t *testing.T) {
	r := start(t, snowflake.Leaf, 200*time.Millisecond)
	r.store.OnLoad(func(ctx context.Context, _ string, _ func() (segment.Range, error)) (segment.Range, error) {
		<-ctx.Done()
		return segment.Range{}, ctx.Err()
	})
	a := r.get("/api/segment/get/order")
	r.wantFailure("/api/segment/get/order", a, leafFailure(503, -3))
	if e := subjects.ParseError(a.header); e == nil || e.Code != 503 || e.Text == "" {
		t.Errorf("the headers say %v", e)
	}
}

func TestAClockThatIsBehindIsNotReady(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	later := time.Now().Add(time.Hour)
	g, err := snowflake.NewGenerator(snowflake.Leaf, number, later.UnixMilli(), later.Add(time.Hour).UnixMilli(), 0)
	if err != nil {
		t.Fatal(err)
	}
	r.issuer.Use(g)
	r.wantFailure("/api/snowflake/get/any", r.get("/api/snowflake/get/any"), leafFailure(503, -3))
}

func TestDecodingShowsThePartsOfTheLayoutInUse(t *testing.T) {
	article, err := snowflake.ParseLayout("article")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layout snowflake.Layout
		id     string
		want   map[string]string
	}{
		{snowflake.Leaf, "1169781842905710592", nil},
		{article, "270162187289683973", nil},
		{snowflake.Leaf, "x", map[string]string{"errorMsg": `"x" is no snowflake: want a decimal number`}},
		{snowflake.Leaf, "", map[string]string{"errorMsg": `"" is no snowflake: want a decimal number`}},
		{snowflake.Leaf, "-1", map[string]string{"errorMsg": "snowflake: -1 is not an ID of layout 41+10+12"}},
	} {
		r := start(t, c.layout, patience)
		a := r.get("/decodeSnowflakeId?snowflakeId=" + c.id)
		if c.want == nil {
			id, _ := strconv.ParseInt(c.id, 10, 64)
			p, err := c.layout.Decode(id)
			if err != nil {
				t.Fatal(err)
			}
			at := p.Time.Local().Format("2006-01-02 15:04:05.000")
			c.want = map[string]string{
				"timestamp": fmt.Sprintf("%d(%s)", p.Time.UnixMilli(), at),
				"workerId":  strconv.Itoa(p.Worker), "sequenceId": strconv.FormatInt(p.Sequence, 10),
			}
		}
		var got map[string]string
		err := json.Unmarshal([]byte(a.body), &got)
		if err != nil || a.status != 200 || !maps.Equal(got, c.want) {
			t.Errorf("%q: %d %s (%v), want %v", c.id, a.status, a.body, err, c.want)
		}
		r.stop()
	}
}

func TestAStopAnswersWhatWasTakenAndTakesNoMore(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	const callers = 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[string]bool)
	for range callers {
		wg.Go(func() {
			for {
				a, err := r.ask("GET", "/api/segment/get/order")
				if err != nil {
					return // it was not taken, see below
				}
				mu.Lock()
				if a.status != 200 || seen[a.body] {
					t.Errorf("%+v", a)
				}
				if seen[a.body] = true; len(seen) == 500 {
					r.stop()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := <-r.served; err != nil || r.given.Load() != int64(len(seen)) {
		t.Errorf("%v; %d of %d answers arrived", err, len(seen), r.given.Load())
	}
}

func TestAStopAnswersARequestThatWaits(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	loads, proceed := make(chan struct{}, 10), make(chan struct{})
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		loads <- struct{}{}
		<-proceed
		return load()
	})
	answers := make(chan answer, 1)
	go func() {
		a, err := r.ask("GET", "/api/segment/get/order")
		if err != nil {
			t.Error(err)
		}
		answers <- a
		close(answers)
	}()
	<-loads
	r.stop()
	select {
	case a := <-answers:
		t.Errorf("it was cut off: %+v", a)
	case <-time.After(200 * time.Millisecond): // long enough to be cut off
	}
	close(proceed)
	if a := <-answers; a.status != 200 || a.body != "1" {
		t.Errorf("%+v", a)
	}
}

func TestAConnectionThatIsKeptLearnsOfTheStopFromItsNextAnswer(t *testing.T) {
	r := startLeaving(t, snowflake.Leaf, patience, patience)
	ask := r.dial()
	if resp := ask(); resp == nil || resp.StatusCode != 200 || resp.Close {
		t.Fatalf("%+v", resp)
	}
	r.stop()
	for {
		resp := ask()
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("after the stop began: %+v", resp)
		}
		if resp.Close {
			return
		}
	}
}
