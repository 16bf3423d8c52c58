package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(examples.Around(m), natstest.Left()...) }

// connect starts a nats-server for one test and connects to it.
func connect(t *testing.T) *nats.Conn { return natstest.Connect(t, natstest.Start(t)) }

// respond puts a responder into the workers' queue group, for one test.
func respond(t *testing.T, nc *nats.Conn, subject string, f func(*nats.Msg)) {
	t.Helper()
	sub, err := nc.QueueSubscribe(subject, wire.QueueGroup, f)
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

// order returns a handle of the tag that desks answer for.
func order(c *client.Client, cfg client.SegmentConfig) *client.Handle {
	return client.Must(c.Segment("order", cfg))
}

// A call is one of the client's methods.
type call func(context.Context, *client.Client) (any, error)

// calls is every method.
var calls = map[string]call{
	"Segment": func(ctx context.Context, c *client.Client) (any, error) {
		return order(c, client.SegmentConfig{}).Next(ctx)
	},
	"SegmentN": func(ctx context.Context, c *client.Client) (any, error) {
		return order(c, client.SegmentConfig{}).NextN(ctx, 5)
	},
	"Snowflake": func(ctx context.Context, c *client.Client) (any, error) {
		return client.Must(c.Snowflake(client.SnowflakeConfig{})).Next(ctx)
	},
	"SnowflakeN": func(ctx context.Context, c *client.Client) (any, error) {
		return client.Must(c.Snowflake(client.SnowflakeConfig{})).NextN(ctx, 5)
	},
	"CreateTag": func(ctx context.Context, c *client.Client) (any, error) {
		return c.CreateTag(ctx, subjects.TagCreate{Tag: "order", Step: 10, Start: 7})
	},
	"EnsureTag": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.EnsureTag(ctx, subjects.TagCreate{Tag: "order"})
	},
	"ListTags": func(ctx context.Context, c *client.Client) (any, error) {
		return c.ListTags(ctx, subjects.TagList{After: "a", Limit: 3})
	},
}

func TestEachCallIsWhatTheWireSays(t *testing.T) {
	nc := connect(t)
	const (
		tag = `{"tag":"order","step":10,"next_id":"7","description":"",` +
			`"updated":"2026-01-02T03:04:05Z","disabled":false}`
		want  = "{order 10 7  2026-01-02 03:04:05 +0000 UTC false  0 0 0 false 0 0 0   <nil>}"
		large = "9223372036854775803-9223372036854775807"
	)
	for name, tc := range map[string]struct{ subject, body, reply, want string }{
		"Segment":    {"ns.segment.order", "", "1001", "1001"},
		"SegmentN":   {"ns.segment.order", "5", "1-4\n9", "[1-4 9]"},
		"Snowflake":  {"ns.snowflake", "", "2124263042718941184", "2124263042718941184"},
		"SnowflakeN": {"ns.snowflake", "5", large, "[" + large + "]"},
		"CreateTag":  {"ns.tag.create", `{"tag":"order","step":10,"start":"7"}`, tag, want},
		"ListTags":   {"ns.tag.list", `{"after":"a","limit":3}`, "[" + tag + "]", "[" + want + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			respond(t, nc, tc.subject, func(m *nats.Msg) {
				if string(m.Data) == tc.body {
					answer(t, m, tc.reply)
				} else {
					refuse(t, m, "400", fmt.Sprintf("the body is %q, want %q", m.Data, tc.body))
				}
			})
			got, err := calls[name](t.Context(), client.Must(client.New(nc, client.Config{Namespace: "ns"})))
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("%v, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestAWrongValueFailsWhereItIsGiven(t *testing.T) {
	nc := connect(t)
	c := client.Must(client.New(nc, client.Config{}))
	_, unconnected := client.New(nil, client.Config{})
	_, namespace := client.New(nc, client.Config{Namespace: "a.b"})
	_, timeout := client.New(nc, client.Config{Timeout: -1})
	errs := map[string]error{"no connection": unconnected, "a.b": namespace, "Timeout": timeout}
	for want, cfg := range map[string]client.SegmentConfig{
		"prefetch -1, 0s":         {Prefetch: -1},
		"prefetch 1, -1ns":        {Prefetch: 1, MaxAge: -1},
		"prefetch 1, 1h0m0.000":   {Prefetch: 1, MaxAge: subjects.MaxPrefetchAge + 1},
		"MaxAge without Prefetch": {MaxAge: time.Second},
		"MaxBatch is -1":          {MaxBatch: -1},
		"MaxBatch is 9":           {MaxBatch: math.MaxInt},
	} {
		_, errs[want] = c.Segment("order", cfg)
	}
	_, errs["the tag"] = c.Segment("no tag", client.SegmentConfig{})
	_, errs["Business is -1"] = c.Snowflake(client.SnowflakeConfig{Business: -1})
	for want, err := range errs {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestEqualArgumentsGiveOneHandle(t *testing.T) {
	c := client.Must(client.New(connect(t), client.Config{}))
	held := client.SegmentConfig{Prefetch: 10}
	spelled := client.SegmentConfig{Prefetch: 10, MaxAge: client.DefaultMaxAge, MaxBatch: client.DefaultMaxBatch}
	one, same := order(c, held), order(c, spelled)
	if one != same || one == order(c, client.SegmentConfig{}) {
		t.Errorf("%p, %p", one, same)
	}
}

func TestNextNSplitsWhatIsAboveTheLimitOfARequest(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	d.say(d.limit("3", 3))
	for range 2 {
		runs, err := h.NextN(t.Context(), 10)
		if err != nil || runs.Len() != 10 {
			t.Errorf("%v, %v", runs, err)
		}
		once(t, slices.Collect(runs.All()))
	}
	if got := h.Stats().Requests; got != 1+4+4 {
		t.Errorf("%d requests", got)
	}
	d.say(func(_, _ int, m *nats.Msg) bool {
		refuseWith(t, m, subjects.UsedUp, subjects.HeaderMaxBatch, "2")
		return true
	})
	if runs, err := h.NextN(t.Context(), 3); !errors.Is(err, client.ErrUsedUp) {
		t.Errorf("%v, %v, where two are left", runs, err)
	}
}

func TestTheFirstForeignReplyIsLogged(t *testing.T) {
	nc := connect(t)
	respond(t, nc, "id.>", func(m *nats.Msg) { answer(t, m, "+OK") })
	var log bytes.Buffer
	own := client.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, c := range []*client.Client{client.Must(client.New(nc, client.Config{})), client.Must(client.New(nc, own))} {
		for range 3 {
			_, one := client.Must(c.Snowflake(client.SnowflakeConfig{})).Next(t.Context())
			_, tags := c.ListTags(t.Context(), subjects.TagList{})
			if !errors.Is(one, client.ErrNotNatsid) || !errors.Is(tags, client.ErrNotNatsid) {
				t.Errorf("%v, %v", one, tags)
			}
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "id.snowflake") {
		t.Errorf("logged is %q, want one line about id.snowflake", text)
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
	_, err := calls["CreateTag"](t.Context(), client.Must(client.New(nc, client.Config{})))
	if e, ok := errors.AsType[*subjects.Error](err); !ok || e.Code != subjects.Unavailable || asked.Load() != 1 {
		t.Errorf("%v after %d requests, want a 503 after 1", err, asked.Load())
	}
}
