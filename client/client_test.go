package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(examples.Around(m), natstest.Left()...) }

// connect starts a nats-server for one test and connects to it.
func connect(t *testing.T) *nats.Conn { return natstest.Connect(t, natstest.Start(t)) }

// respond puts a responder into the workers' queue group, for one test.
func respond(t *testing.T, nc *nats.Conn, subject string, f func(*nats.Msg)) {
	t.Helper()
	sub, err := nc.QueueSubscribe(subject, subjects.QueueGroup, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	})
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// answer replies with a body. A request may come when its test has ended.
func answer(t *testing.T, m *nats.Msg, body string) {
	if err := m.Respond([]byte(body)); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
}

// refuse replies with a code.
func refuse(t *testing.T, m *nats.Msg, code, text string) {
	reply := nats.NewMsg(m.Reply)
	reply.Header.Set(subjects.HeaderErrorCode, code)
	reply.Header.Set(subjects.HeaderError, text)
	if err := m.RespondMsg(reply); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
}

const (
	slack = 10 * time.Second // what a busy machine may add to a time
	long  = time.Minute      // a deadline that "at once" does not come near
)

// A call is one of the client's methods.
type call func(context.Context, *client.Client) (any, error)

// calls is every method.
var calls = map[string]call{
	"Segment":    func(ctx context.Context, c *client.Client) (any, error) { return c.Segment("order").Next(ctx) },
	"SegmentN":   func(ctx context.Context, c *client.Client) (any, error) { return c.Segment("order").NextN(ctx, 5) },
	"Snowflake":  func(ctx context.Context, c *client.Client) (any, error) { return c.Snowflake().Next(ctx) },
	"SnowflakeN": func(ctx context.Context, c *client.Client) (any, error) { return c.Snowflake().NextN(ctx, 5) },
	"CreateTag": func(ctx context.Context, c *client.Client) (any, error) {
		return c.CreateTag(ctx, subjects.TagCreate{Tag: "order", Step: 10, Start: 7})
	},
	"UpdateTag": func(ctx context.Context, c *client.Client) (any, error) {
		return c.UpdateTag(ctx, subjects.TagUpdate{Tag: "order", Step: new(int64(10)), MaxID: new(subjects.Decimal(7))})
	},
	"EnsureTag": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.EnsureTag(ctx, subjects.TagCreate{Tag: "order"})
	},
	"DeleteTag": func(ctx context.Context, c *client.Client) (any, error) { return c.DeleteTag(ctx, "order") },
	"ListTags": func(ctx context.Context, c *client.Client) (any, error) {
		return c.ListTags(ctx, subjects.TagList{After: "a", Limit: 3})
	},
	"Throttle": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Throttle(ctx, subjects.Throttle{Tag: "order", Rate: 5})
	},
}

func TestEachCallIsWhatTheWireSays(t *testing.T) {
	nc := connect(t)
	const (
		tag = `{"tag":"order","step":10,"max_id":"7","description":"",` +
			`"updated":"2026-01-02T03:04:05Z","disabled":false}`
		want  = "{order 10 7  2026-01-02 03:04:05 +0000 UTC false  0 0 0  0 0 0    0 <nil> <nil> <nil>}"
		large = "9223372036854775803-9223372036854775807"
	)
	for name, tc := range map[string]struct{ subject, body, reply, want string }{
		"Segment":    {"ns.segment.order", "", "1001", "1001"},
		"SegmentN":   {"ns.segment.order", "5", "1-4\n9", "[1-4 9]"},
		"Snowflake":  {"ns.snowflake", "", "2124263042718941184", "2124263042718941184"},
		"SnowflakeN": {"ns.snowflake", "5", large, "[" + large + "]"},
		"CreateTag":  {"ns.tag.create", `{"tag":"order","step":10,"start":"7"}`, tag, want},
		"UpdateTag":  {"ns.tag.update", `{"tag":"order","step":10,"max_id":"7"}`, tag, want},
		"DeleteTag":  {"ns.tag.delete", `{"tag":"order"}`, tag, want},
		"ListTags":   {"ns.tag.list", `{"after":"a","limit":3}`, "[" + tag + "]", "[" + want + "]"},
		"Throttle": {
			"ns.control.throttle", `{"tag":"order","rate":5}`, `{"all":0,"tags":{"order":5}}`, "{0 map[order:5]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			respond(t, nc, tc.subject, func(m *nats.Msg) {
				if string(m.Data) == tc.body {
					answer(t, m, tc.reply)
				} else {
					refuse(t, m, "400", fmt.Sprintf("the body is %q, want %q", m.Data, tc.body))
				}
			})
			got, err := calls[name](t.Context(), client.New(nc, client.Namespace("ns")))
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("%v, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestWithoutAWorkerTagsFailAtOnceAndIDsAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := client.New(connect(t))
	for name, call := range calls {
		patience := long
		if isForIDs(name) {
			patience = 2 * time.Second // a busy machine learns of it by then
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begin := time.Now()
		_, err := call(ctx, c)
		if !errors.Is(err, client.ErrNotServed) || !strings.Contains(err.Error(), "id.") {
			t.Errorf("%s: %v, want ErrNotServed with the subject", name, err)
		}
		if isForIDs(name) != errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > slack {
			t.Errorf("%s: failed after %v", name, took)
		}
	}
}

// isForIDs reports whether a call is for IDs, so that it may be repeated.
func isForIDs(name string) bool { return strings.HasPrefix(name, "S") }

func TestWithFailFastACallFailsAtOnceWithoutAWorker(t *testing.T) {
	c := client.New(connect(t), client.FailFast(), client.Timeout(long))
	held := c.Segment("order", client.Prefetch(10, time.Minute))
	begin := time.Now()
	_, one := c.Segment("order").Next(t.Context())
	_, many := c.Segment("order").NextN(t.Context(), 5)
	_, first := held.Next(t.Context())
	for _, err := range []error{one, many, first} {
		if !errors.Is(err, client.ErrNotServed) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want ErrNotServed alone", err)
		}
	}
	if took := time.Since(begin); took > slack {
		t.Errorf("failed after %v", took)
	}
}

func TestAClientWithoutAConnectionPanicsWithASentence(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "client: New needs a connection") {
			t.Errorf("%q", said)
		}
	}()
	client.New(nil)
}

func TestTheFirstForeignReplyIsLoggedAlsoWithoutALogger(t *testing.T) {
	nc := connect(t)
	respond(t, nc, "id.>", func(m *nats.Msg) { answer(t, m, "+OK") })
	var log, mine bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	own := client.Log(slog.New(slog.NewTextHandler(&mine, nil)))
	for _, c := range []*client.Client{client.New(nc), client.New(nc, own)} {
		for range 3 {
			_, one := c.Snowflake().Next(t.Context())
			_, tags := c.ListTags(t.Context(), subjects.TagList{})
			if !errors.Is(one, client.ErrNotNatsid) || !errors.Is(tags, client.ErrNotNatsid) {
				t.Errorf("%v, %v", one, tags)
			}
		}
	}
	for _, text := range []string{log.String(), mine.String()} {
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "id.snowflake") {
			t.Errorf("logged is %q, want one line about id.snowflake", text)
		}
	}
}

func TestErrorsNameCallsAndNotCommands(t *testing.T) {
	nc := connect(t)
	var text atomic.Value
	respond(t, nc, "id.>", func(m *nats.Msg) { refuse(t, m, "404", text.Load().(string)) })
	for said, want := range map[string]string{
		"no such tag; create it with `natsid tag create`": "no such tag; create it with Client.CreateTag",
		"it exists; change it with `natsid tag update`":   "it exists; change it with Client.UpdateTag",
		"look at the tag with `natsid tag list`":          "look at the tag with Client.ListTags",
	} {
		text.Store(said)
		_, err := client.New(nc).Segment("order").Next(t.Context())
		e, ok := errors.AsType[*subjects.Error](err)
		if !ok || e.Text != said || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestACallIsServedByAWorkerThatStartsMeanwhile(t *testing.T) {
	nc := connect(t)
	got := make(chan error, 1)
	go func() {
		_, err := client.New(nc).Segment("order").Next(t.Context())
		got <- err
	}()
	time.Sleep(300 * time.Millisecond)
	respond(t, nc, "id.segment.order", func(m *nats.Msg) { answer(t, m, "1") })
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestARefusalHasTheWorkersCodeAndTextAndIsNotRepeated(t *testing.T) {
	nc := connect(t)
	var code atomic.Value
	var asked atomic.Int64
	respond(t, nc, "id.>", func(m *nats.Msg) {
		asked.Add(1)
		refuse(t, m, code.Load().(string), "because")
	})
	for _, tc := range []struct {
		sent string
		want subjects.Code
		is   error
	}{
		{"400", 400, client.ErrBadRequest}, {"404", 404, client.ErrUnknownTag}, {"409", 409, client.ErrTagExists},
		{"500", 500, nil}, {"4o4", 500, nil},
	} {
		code.Store(tc.sent)
		for name, call := range calls {
			asked.Store(0)
			_, err := call(t.Context(), client.New(nc))
			e, ok := errors.AsType[*subjects.Error](err)
			said := ok && e.Code == tc.want && strings.Contains(e.Text, "because")
			if !said || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%s: %v, want %d because", name, err, tc.want)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("%s, code %s: asked %d times", name, tc.sent, n)
			}
		}
	}
}

// The first requests reach workers that cannot issue, or that hang.
func TestACallGoesOnUntilAWorkerCanIssue(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	var asked, bad atomic.Int64
	var trouble atomic.Value
	for range 2 {
		respond(t, nc, "id.>", func(m *nats.Msg) {
			if asked.Add(1) > bad.Load() {
				answer(t, m, "42")
			} else if code := trouble.Load().(string); code != "" {
				refuse(t, m, code, "not now")
			}
		})
	}
	for _, code := range []string{"503", "429", ""} {
		trouble.Store(code)
		for _, n := range []int64{0, 1, 2, 5} {
			bad.Store(n)
			asked.Store(0)
			id, err := client.New(nc, client.Timeout(long)).Snowflake().Next(t.Context())
			if err != nil || id != 42 || asked.Load() < n+1 {
				t.Errorf("code %q, %d that cannot: %d, %v, asked %d times", code, n, id, err, asked.Load())
			}
		}
	}
}

func TestAReplyWithoutTheRequestedNumberOfIDsIsNotNatsids(t *testing.T) {
	nc := connect(t)
	var body atomic.Value
	respond(t, nc, "id.>", func(m *nats.Msg) { answer(t, m, body.Load().(string)) })
	c := client.New(nc)
	for n, replies := range map[int][]string{
		1: {"", "x", "1-2", "1\n2", "1\n", "-1", "01", " 1", "2-1", "9223372036854775808", "+OK",
			`{"stream":"S","seq":1}`},
		5: {"1", "1-4", "1-6", "1-2\n4-5", "1-5\n", "5-1"},
	} {
		for _, reply := range replies {
			body.Store(reply)
			runs, err := c.Segment("order").NextN(t.Context(), n)
			if !errors.Is(err, client.ErrNotNatsid) || !strings.Contains(err.Error(), "id.segment.order") {
				t.Errorf("%q to a request for %d: %v, %v", reply, n, runs, err)
			}
		}
	}
	body.Store("not JSON")
	for _, name := range []string{"CreateTag", "UpdateTag", "DeleteTag", "ListTags", "Throttle"} {
		if got, err := calls[name](t.Context(), c); !errors.Is(err, client.ErrNotNatsid) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestRunsWhoseLengthsOverflowAreNotNatsids(t *testing.T) {
	nc := connect(t)
	respond(t, nc, "id.>", func(m *nats.Msg) { answer(t, m, "0-9223372036854775807\n0-9223372036854775807\n7") })
	if id, err := client.New(nc).Snowflake().Next(t.Context()); !errors.Is(err, client.ErrNotNatsid) {
		t.Errorf("2^64+1 IDs where one was requested: %d, %v", id, err)
	}
}

func TestAStreamThatAnswersFirstIsNotTakenForAWorker(t *testing.T) {
	nc := connect(t)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(long))
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{Name: "ALL", Subjects: []string{"id.>"}}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			got, err := call(t.Context(), client.New(nc))
			if !errors.Is(err, client.ErrNotNatsid) || !strings.Contains(err.Error(), "JetStream stream") {
				t.Errorf("%+v, %v, want an error that speaks of a stream", got, err)
			}
		})
	}
}

func TestABadTagIsRefusedBeforeItIsSent(t *testing.T) {
	nc := connect(t)
	all, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(nc)
	for _, tag := range []string{
		"", " ", "a b", "a\tb", "a\r\nPUB x 0", "*", ">", "a.*", "a..b", ".a", "a.", "a\x00", "ä",
		strings.Repeat("a", 129),
	} {
		_, one := c.Segment(tag).Next(t.Context())
		_, many := c.Segment(tag).NextN(t.Context(), 9)
		_, made := c.CreateTag(t.Context(), subjects.TagCreate{Tag: tag})
		_, changed := c.UpdateTag(t.Context(), subjects.TagUpdate{Tag: tag, Step: new(int64(1))})
		_, deleted := c.DeleteTag(t.Context(), tag)
		ensured := c.EnsureTag(t.Context(), subjects.TagCreate{Tag: tag})
		for _, err := range []error{one, many, made, changed, deleted, ensured} {
			if e, ok := errors.AsType[*subjects.Error](err); !ok || e.Code != subjects.BadRequest {
				t.Errorf("tag %q: %v, want 400", tag, err)
			}
		}
	}
	if err := nc.Publish("end", nil); err != nil {
		t.Fatal(err)
	}
	if m, err := all.NextMsg(30 * time.Second); err != nil || m.Subject != "end" {
		t.Errorf("the server saw %v, %v", m, err)
	}
}

func TestACallEndsByItsContextOrElseByTheDefault(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	respond(t, nc, "id.>", func(*nats.Msg) {}) // takes requests and answers none
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, call := range calls {
		for _, want := range []time.Duration{100 * time.Millisecond, client.DefaultTimeout} {
			wg.Go(func() {
				ctx := context.Background()
				if want != client.DefaultTimeout {
					short, cancel := context.WithTimeout(ctx, want)
					defer cancel()
					ctx = short
				}
				begin := time.Now()
				_, err := call(ctx, client.New(nc))
				took := time.Since(begin)
				if !errors.Is(err, context.DeadlineExceeded) || took < want/2 || took > want+slack {
					t.Errorf("%s: %v after %v, want the deadline of %v", name, err, took, want)
				}
				if err != nil && !strings.Contains(err.Error(), "ask again") {
					t.Errorf("%s: %q does not say what to do", name, err)
				}
			})
		}
	}
}

// Repeated after a failure it could find the tag that it created itself.
func TestARequestToCreateATagIsNotRepeated(t *testing.T) {
	nc := connect(t)
	var asked atomic.Int64
	respond(t, nc, "id.tag.create", func(m *nats.Msg) {
		asked.Add(1)
		refuse(t, m, "503", "not now")
	})
	_, err := calls["CreateTag"](t.Context(), client.New(nc))
	if e, ok := errors.AsType[*subjects.Error](err); !ok || e.Code != subjects.Unavailable || asked.Load() != 1 {
		t.Errorf("%v after %d requests, want a 503 after 1", err, asked.Load())
	}
}

func TestACancelledCallReturnsAtOnce(t *testing.T) {
	nc := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	respond(t, nc, "id.>", func(*nats.Msg) { cancel() })
	begin := time.Now()
	_, err := client.New(nc).Segment("order").Next(ctx)
	if took := time.Since(begin); !errors.Is(err, context.Canceled) || took > slack {
		t.Errorf("%v after %v", err, took)
	}
}
