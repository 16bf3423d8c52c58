package leaf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/leaf"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// patience is the deadline where a slow machine must not meet it.
const patience = 30 * time.Second

// A rig is a server, and the wire of a worker: internal/cli tests it with a real one.
type rig struct {
	*testing.T
	url    string
	worker *nats.Conn
	given  atomic.Int64 // requests that the worker answered with IDs
	served chan error   // what Serve returned
	stop   context.CancelFunc
	client *http.Client
}

func start(t *testing.T, layout snowflake.Layout, deadline time.Duration) *rig {
	t.Helper()
	url := natstest.Start(t)
	r := &rig{
		T: t, worker: natstest.Connect(t, url), served: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &leaf.Server{
		IDs:      client.Must(client.New(natstest.Connect(t, url), client.Config{Timeout: deadline})),
		Deadline: deadline, Layout: layout, Log: slog.New(slog.DiscardHandler),
	}
	r.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.served <- s.Serve(ctx, l); close(r.served) }()
	t.Cleanup(func() {
		cancel()
		r.client.CloseIdleConnections()
		for range r.served {
		}
	})
	return r
}

// answer answers requests on a subject as a worker does.
func (r *rig) answer(subject string, ids func(count []byte) ([]byte, error)) {
	r.Helper()
	_, err := r.worker.Subscribe(subject, func(m *nats.Msg) {
		body, err := ids(m.Data)
		reply := &nats.Msg{Data: body}
		if err != nil {
			reply.Header = err.(*subjects.Error).Headers()
		} else {
			r.given.Add(1)
		}
		if err := m.RespondMsg(reply); err != nil {
			r.Error(err)
		}
	})
	if err == nil {
		err = r.worker.Flush()
	}
	if err != nil {
		r.Fatal(err)
	}
}

// from returns IDs that begin with first.
func from(first subjects.ID) func([]byte) ([]byte, error) {
	return func(count []byte) ([]byte, error) {
		n, err := wire.ParseCount(count, 5000)
		if err != nil {
			return nil, err
		}
		first += subjects.ID(n)
		return subjects.AppendRun(nil, first-subjects.ID(n), first-1), nil
	}
}

func refuse(e *subjects.Error) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return nil, e }
}

// A reply is one over HTTP.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *rig) ask(method, path string) (a reply, err error) {
	q, err := http.NewRequest(method, r.url+path, nil)
	if err != nil {
		return a, err
	}
	return r.send(q)
}

func (r *rig) send(q *http.Request) (a reply, err error) {
	resp, err := r.client.Do(q)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func (r *rig) get(path string) reply {
	r.Helper()
	a, err := r.ask("GET", path)
	if err != nil {
		r.Fatal(err)
	}
	return a
}

func TestIDsArePlainText(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.answer("id.segment.order", from(1))
	r.answer("id.segment.order.eu", from(1))
	r.answer("id.snowflake", from(1<<40))
	last := int64(0)
	above := func(a reply, least int64) bool { // a copy of a request leaves a hole
		before := max(last, least)
		last, _ = strconv.ParseInt(a.body, 10, 64)
		return a.status == 200 && last > before && last < before+100
	}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} { // Leaf names no method
		a, err := r.ask(method, "/api/segment/get/order")
		if err != nil || !above(a, 0) {
			t.Errorf("%s: %+v %v, want an ID", method, a, err)
		}
		if kind := strings.ToLower(a.header.Get("Content-Type")); kind != "text/plain;charset=utf-8" {
			t.Errorf("%s is of type %s", method, kind)
		}
	}
	for _, path := range []string{
		"/api/segment/get/order/", // Spring ignores the slash
		"/api/segment/get/order?n=",
		"/api/segment/get/order?other=1",
		"//api/segment///get//order;v=1/", // and these
		"/api;a=1/segment/get/order;v=%2F;jsessionid=7?n=1",
	} {
		if a := r.get(path); !above(a, 0) {
			t.Errorf("%s: %+v, want an ID", path, a)
		}
	}
	if a := r.get("/api/segment/get/order?n=10"); !regexp.MustCompile(`^\d\d-\d\d$`).MatchString(a.body) {
		t.Errorf("ten IDs: %+v", a)
	}
	if a := r.get("/api/segment/get/order.eu"); a.body != "1" {
		t.Errorf("another tag: %+v", a)
	}
	for _, key := range []string{"any", "a.b", "1/2", "order", "%20"} {
		if a := r.get("/api/snowflake/get/" + key); !above(a, 1<<40-1) {
			t.Errorf("snowflake of %q: %+v", key, a)
		}
	}
}

// Spring's RestTemplate with a Long accepts JSON only.
func TestAnIDIsOfTheTypeThatTheCallerPrefers(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.answer("id.segment.order", from(1))
	for accept, want := range map[string]string{
		"": "text/plain", "*/*": "text/plain", "text/*": "text/plain", "application/*": "application/json",
		"application/json, application/*+json":              "application/json",
		"text/plain, application/json, */*":                 "text/plain",
		"text/html,application/xml;q=0.9,*/*;q=0.8":         "text/plain",
		"application/json;q=0.5, text/plain;q=0.7":          "text/plain",
		"application/json;q=high, json, image/*, no type;=": "text/plain",
	} {
		q, err := http.NewRequest("GET", r.url+"/api/segment/get/order", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", accept)
		if accept == "" {
			q.Header.Del("Accept")
		}
		a, err := r.send(q)
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		if err := json.Unmarshal([]byte(a.body), &id); err != nil || id < 1 {
			t.Errorf("%q: %q is no number", accept, a.body)
		}
		if got := a.header.Get("Content-Type"); got != want+";charset=UTF-8" {
			t.Errorf("%q: an answer of type %s, want %s", accept, got, want)
		}
	}
}

func TestOptionsAndHeadDrawNoID(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.answer("id.segment.order", from(1))
	r.answer("id.snowflake", from(1))
	for _, method := range []string{"OPTIONS", "HEAD"} {
		for _, path := range []string{"/api/segment/get/order", "/api/snowflake/get/any"} {
			a, err := r.ask(method, path)
			if err != nil || a.status != 200 || a.body != "" || !strings.Contains(a.header.Get("Allow"), "GET") {
				t.Errorf("%s %s: %+v %v", method, path, a, err)
			}
		}
	}
	if a := r.get("/api/segment/get/order"); a.body != "1" {
		t.Errorf("%s, want the first ID", a.body)
	}
}

func TestIDsOfSeveralRangesAreLines(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	r.answer("id.segment.order", func([]byte) ([]byte, error) { return []byte("9-10\n21"), nil })
	if a := r.get("/api/segment/get/order?n=3"); a.status != 200 || a.body != "9-10\n21" {
		t.Errorf("%+v", a)
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

func (r *rig) wantFailure(path string, want failed) reply {
	r.Helper()
	a := r.get(path)
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
	return a
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
	r.answer("id.segment.order", from(1))
	r.answer("id.snowflake", from(1))
	r.answer("id.segment.none", refuse(subjects.Errorf(subjects.NotFound, "no such tag")))
	argument := func(format string, args ...any) failed {
		return failed{
			Status: 400, Error: "Bad Request", Exception: "java.lang.IllegalArgumentException",
			Message: fmt.Sprintf(format, args...),
		}
	}
	const notRead = "the count is %q, want empty for one ID or a decimal 1..%d without leading zero"
	for _, c := range []struct {
		path string
		want failed
	}{
		{"/api/segment/get/none", leafFailure(500, -2)},
		{"/api/segment/get/a*b", argument("byte 1 of the tag is %q, want A-Z a-z 0-9 - _ / = .", "*")},
		{"/api/segment/get/" + strings.Repeat("x", 129), argument("the tag has 129 bytes, want at most 128")},
		{"/api/segment/get/order?n=5;m=1", argument(notRead, "n=5;m=1", 1_000_000)},
		{"/api/snowflake/get/any?n=5%zz", argument(notRead, "n=5%zz", 1_000_000)},
		{"/api/segment/get/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/api/snowflake/get/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/", failed{Status: 404, Error: "Not Found", Message: "No message available"}},
		{"/decodeSnowflakeId", failed{
			Status: 400, Error: "Bad Request",
			Exception: "org.springframework.web.bind.MissingServletRequestParameterException",
			Message:   "Required String parameter 'snowflakeId' is not present",
		}},
	} {
		r.wantFailure(c.path, c.want)
	}
}

// A client asks again after these refusals, until the deadline.
func TestFailuresThatMayPassAreThoseOfLeaf(t *testing.T) {
	r := start(t, snowflake.Leaf, 2*time.Second)
	limited := &subjects.Error{Code: subjects.TooMany, Text: "limited", RetryAfter: 1500 * time.Millisecond}
	r.answer("id.segment.limited", refuse(limited))
	r.answer("id.segment.slow", refuse(subjects.Errorf(subjects.Unavailable, "no range was loaded in time")))
	for _, c := range []struct {
		path, text, after string
		want              failed
	}{
		{"/api/segment/get/limited?n=50", "limited", "2", leafFailure(429, -3)},
		{"/api/segment/get/slow", "no range was loaded in time", "1", leafFailure(503, -3)},
		{"/api/segment/get/nobody", "no worker serves", "1", leafFailure(503, -1)},
		{"/api/snowflake/get/any?n=2", "no worker serves", "1", leafFailure(503, -1)},
	} {
		a := r.wantFailure(c.path, c.want)
		e := subjects.ParseError(a.header)
		if e == nil || int(e.Code) != a.status || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: the headers say %v", c.path, e)
		}
		if after := a.header.Get("Retry-After"); after != c.after {
			t.Errorf("%s: Retry-After %s", c.path, after)
		}
	}
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
			id, _ := subjects.ParseID(c.id)
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

// Callers of one ID share requests to a worker; none gets an ID of a request that was sent before it asked.
func TestRequestsAreMerged(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	ids, first, proceed := from(1), make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.answer("id.segment.order", func(count []byte) ([]byte, error) {
		once.Do(func() { close(first); <-proceed })
		return ids(count)
	})
	const callers = 50
	bodies := make(chan string, callers)
	var wg sync.WaitGroup
	get := func() {
		a, err := r.ask("GET", "/api/segment/get/order")
		if err != nil || a.status != 200 {
			t.Errorf("%+v %v", a, err)
		}
		bodies <- a.body
	}
	wg.Go(get)
	<-first
	for range callers - 1 {
		wg.Go(get)
	}
	time.Sleep(100 * time.Millisecond) // many join
	close(proceed)
	wg.Wait()
	close(bodies)
	seen := map[string]bool{}
	for body := range bodies {
		if seen[body] {
			t.Errorf("%s was given twice", body)
		}
		seen[body] = true
	}
	if n := r.given.Load(); n >= callers {
		t.Errorf("%d requests for %d callers", n, callers)
	}
}

func TestAStopAnswersARequestThatWaits(t *testing.T) {
	r := start(t, snowflake.Leaf, patience)
	ids, asked, proceed := from(1), make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.answer("id.segment.order", func(count []byte) ([]byte, error) {
		once.Do(func() { close(asked); <-proceed }) // copies wait behind it
		return ids(count)
	})
	replies := make(chan reply, 1)
	go func() {
		a, err := r.ask("GET", "/api/segment/get/order?n=2")
		if err != nil {
			t.Error(err)
		}
		replies <- a
		close(replies)
	}()
	<-asked
	r.stop()
	select {
	case a := <-replies:
		t.Errorf("it was cut off: %+v", a)
	case <-time.After(time.Second): // long enough to be cut off
	}
	close(proceed)
	if a := <-replies; a.status != 200 || a.body != "1-2" {
		t.Errorf("%+v", a)
	}
}
