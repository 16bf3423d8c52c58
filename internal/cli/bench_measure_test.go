package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/measure"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestErrorsOfBenchHaveNames(t *testing.T) {
	refused := subjects.Errorf(subjects.Unavailable, "no")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{refused, "503"},
		{fmt.Errorf("in time: %w: %w", context.DeadlineExceeded, refused), "503"}, // the cause, not its consequence
		{fmt.Errorf("in time: %w: %w", context.DeadlineExceeded, client.ErrNotServed), "no responders"},
		{nats.ErrNoResponders, "no responders"},
		{nats.ErrTimeout, "timeout"},
		{fmt.Errorf("no answer: %w", context.DeadlineExceeded), "timeout"},
		{holds([]byte(`{"stream":"ALL"}`), 1), "not natsid"},
		{client.ErrBusy, "busy"},
		{nats.ErrConnectionClosed, "closed"},
		{errors.New("a surprise"), "other"},
	} {
		if got := nameOfError(tc.err); got != tc.want {
			t.Errorf("%v is %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestBenchCountsOnlyRepliesWithTheIDsRequested(t *testing.T) {
	for _, tc := range []struct {
		reply string
		n     int64
		good  bool
	}{
		{"5", 1, true}, {"5-7\n9", 4, true}, {"5-7", 4, false}, {"5-7", 2, false}, {"", 1, false}, {"+OK", 1, false},
	} {
		if err := holds([]byte(tc.reply), tc.n); (err == nil) != tc.good {
			t.Errorf("%q for %d IDs: %v", tc.reply, tc.n, err)
		}
	}
}

func TestBenchTakesNoForeignReplyForIDs(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	for subject, answer := range map[string]*nats.Msg{
		"foreign": {Data: []byte(`{"stream":"ALL","seq":1}`)},
		"refuses": {Header: nats.Header{subjects.HeaderErrorCode: {"503"}, subjects.HeaderError: {"no"}}},
	} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(answer) }); err != nil {
			t.Fatal(err)
		}
	}
	for subject, want := range map[string]string{"foreign": "not natsid", "refuses": "503", "nobody": "no responders"} {
		if err := bareCall(nc, subject, 1)(t.Context()); err == nil || nameOfError(err) != want {
			t.Errorf("%s: %v, want %s", subject, err, want)
		}
	}
}

func TestTurnsOfBenchKeepTheRateAndTheDuration(t *testing.T) {
	for _, tc := range []struct {
		rate     float64
		duration time.Duration
		turns    int
		calls    int64 // of a turn
	}{
		{0, 10 * time.Second, 20, 0}, {0, 100 * time.Millisecond, 5, 0}, {0, 2700 * time.Millisecond, 5, 0},
		{3000, 10 * time.Second, 20, 1500}, {5, 10 * time.Second, 16, 3}, {7, 10 * time.Second, 17, 4},
		{1, 10 * time.Second, 10, 1}, {0.3, 10 * time.Second, 3, 1}, {1e-300, 10 * time.Second, 1, 1},
		{1e9, time.Millisecond, 5, 200_000}, {333.3, 10 * time.Second, 19, 167},
	} {
		f := benchFlags{Rate: tc.rate, Duration: tc.duration}
		n, each := f.turns()
		due := (&measure.Load{Rate: tc.rate}).Due(each)
		if n != tc.turns || due != tc.calls || time.Duration(n)*each > tc.duration {
			t.Errorf("%v/s for %v: %d turns of %v with %d calls, want %d with %d",
				tc.rate, tc.duration, n, each, due, tc.turns, tc.calls)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23us", 78_849: "78.8us", 3_569_999: "3.57ms", 20 * time.Second: "20s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}
