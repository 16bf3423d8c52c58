package cli_test

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestGetPrintsRunsExactlyAsOnTheWire(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	last := subjects.ID(0)
	for _, tc := range []struct {
		args []string
		n    int64
	}{
		{[]string{"get", "segment", "order"}, 1},
		{[]string{"get", "segment", "order", "-n", "100"}, 100},
		{[]string{"get", "segment", "order", "--n=1"}, 1},
	} {
		got := answered(t, append(tc.args, nats)...)
		run := runIn(t, got)
		if got.want(t, 0, ""); run.Len() != tc.n || run.First <= last || got.out != run.String()+"\n" {
			t.Errorf("%q after %d: %+v, want %d IDs", tc.args, last, got, tc.n)
		}
		last = run.Last
	}
	if got := runIn(t, answered(t, "get", "segment", "-n5", "a/b=c.d", nats)); got.Len() != 5 || got.First > last {
		t.Errorf("another tag: %v", got)
	}
	for n := range 3 {
		got := answered(t, "get", "snowflake", "-n", strconv.Itoa(n+1), nats)
		var sum int64
		runs, err := subjects.ParseRuns([]byte(strings.TrimSuffix(got.out, "\n")))
		for _, r := range runs {
			sum += r.Len()
		}
		if got.want(t, 0, ""); err != nil || sum != int64(n)+1 {
			t.Errorf("%d snowflakes: %q, %v", n+1, got.out, err)
		}
		decoded := natsid(t, "decode", runs[0].First.String())
		if decoded.want(t, 0, ""); !strings.Contains(decoded.out, time.Now().UTC().Format("2006-01-02")) {
			t.Errorf("it decodes to %s", decoded.out)
		}
	}
}

// wantFrom checks that a command printed IDs from first on. On a busy machine they begin up to a million above: a
// request that was sent again uses up IDs twice, and a range that comes late is a hole.
func wantFrom(t *testing.T, first subjects.ID, r result) {
	t.Helper()
	if got := runIn(t, r).First; got < first || got > first+1_000_000 {
		t.Errorf("it printed %d, want an ID from %d on", got, first)
	}
}

// runIn returns the run of IDs that a command printed.
func runIn(t *testing.T, r result) subjects.Run {
	t.Helper()
	runs, err := subjects.ParseRuns([]byte(strings.TrimSuffix(r.out, "\n")))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v, want one run of IDs", r, err)
	}
	return runs[0]
}

func TestATagThatCannotBeSentIsRefusedBeforeNATSIsContacted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			calls.Add(1)
			c.Close()
		}
	})
	nats := "--nats=nats://" + l.Addr().String()
	natsid(t, "get", "segment", "order", nats).want(t, 1) // this one connects
	if calls.Swap(0) == 0 {
		t.Error("a connection would not be counted")
	}
	for _, tag := range []string{
		"", " ", "a b", "a\tb", "a..b", ".a", "a.", "*", ">", "a\nb", "bücher", strings.Repeat("a", 129),
	} {
		natsid(t, "get", "segment", nats, "--", tag).want(t, 2, "tag")
		natsid(t, "tag", "create", nats, "--", tag).want(t, 2, "tag")
	}
	l.Close()
	accepting.Wait()
	if n := calls.Load(); n != 0 {
		t.Errorf("%d connections to NATS", n)
	}
}

func TestWithoutAWorkerGetSaysSo(t *testing.T) {
	t.Parallel()
	natsid(t, "get", "snowflake", "--nats", natstest.Start(t)).want(t, 1, "no worker", "id.snowflake")
}

func TestAStreamThatAnswersFirstIsNotTakenForAWorker(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	all := jetstream.StreamConfig{Name: "ALL", Subjects: []string{"id.>"}}
	if _, err := natstest.JetStream(t, url).CreateStream(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"get", "segment", "order"}, {"get", "snowflake"}, {"tag", "list"}, {"tag", "create", "order"},
		{"tag", "update", "order", "--step", "5"}, {"tag", "delete", "order", "-y"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			natsid(t, append(args, "--nats", url)...).want(t, 1, "JetStream stream")
		})
	}
}
