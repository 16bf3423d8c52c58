package cli_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/stamp"
	"github.com/natsid/natsid/subjects"
)

func TestStampCopiesAStreamWithIDs(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	js := withOrders(t, url)
	for i := range 5 {
		publish(t, js, &nats.Msg{Subject: "orders.new", Data: fmt.Append(nil, i)})
	}
	args := []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED", "--once"}
	natsid(t, append(args, "--tag=order", "--snowflake")...).want(t, 2, "can't be used together")
	natsid(t, append(args, "--tag=a b")...).want(t, 2, `tag "a b"`)
	natsid(t, append(args, "--tag=order", "--into=stamped.*")...).want(t, 2, `--into "stamped.*"`)
	natsid(t, append(args, "--tag=order", "--to=ORDERS")...).want(t, 2, "copy to another stream")
	natsid(t, append(args, "--tag=order")...).want(t, 1, "there is no stream STAMPED", "--create")
	natsid(t, append(args, "--tag=order", "--create", "--subject=other.>")...).want(t, 1, "orders.new", "--subject")

	for _, n := range []string{`\d`, "0"} { // the first one may be asked again
		want := regexp.MustCompile("^" + n + ` messages? copied, up to message 5 of ORDERS\n$`)
		got := answered(t, append(args, "--tag=order", "--create", "--subject=orders.>", "--into=stamped.>")...)
		if got.want(t, 0); !want.MatchString(got.out) { // a busy machine may warn
			t.Errorf("it prints %q, want %v", got.out, want)
		}
	}
	got := answered(t, append(args, "--snowflake", "--json")...).out
	if want := `{"copied":0,"dead_letters":0,"position":5,"behind":0}` + "\n"; got != want {
		t.Errorf("it prints %s, want %s", got, want)
	}
	before := subjects.ID(0)
	for seq, m := range messages(t, js, "STAMPED") {
		id, err := stamp.ID(m.Header)
		if err != nil || id <= before || m.Subject != "stamped.new" || string(m.Data) != fmt.Sprint(seq) {
			t.Errorf("message %d: %q on %s, ID %v, %v", seq+1, m.Data, m.Subject, id, err)
		}
		before = id
		if time.Since(m.Time) > time.Minute {
			t.Errorf("it was written at %v", m.Time)
		}
	}
}

// Two pairs of streams with default flags do not get in each other's way.
func TestTheTargetTakesTheCopiesOfItsSourceOnly(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	js := withOrders(t, url)
	for name, subjects := range map[string][]string{
		"EVENTS": {"events.>", "clicks.*.new"}, "COPY-OF-ALL": nil, "OTHER": {"other.orders.>"},
	} {
		c := jetstream.StreamConfig{Name: name, Subjects: subjects}
		if subjects == nil {
			c.Mirror = &jetstream.StreamSource{Name: "ORDERS"}
		}
		asked(t, func(ctx context.Context) (jetstream.Stream, error) { return js.CreateStream(ctx, c) })
	}
	run := func(from string, flags ...string) result {
		return answered(t, append([]string{"stamp", "--nats=" + url, "--from=" + from, "--to=" + from + "-STAMPED",
			"--tag=order", "--once", "--create"}, flags...)...)
	}
	for _, tc := range []struct{ from, flags, want string }{
		{"ORDERS", "--into=stamped.>", "stamped.orders.>"},
		{"EVENTS", "--into=stamped.>", "stamped.events.> stamped.clicks.*.new"},
		{"OTHER", "--subject=other.> --into=mine.>", "mine.orders.>"},
		{"COPY-OF-ALL", "--into=copies.>", "copies.>"},
	} {
		run(tc.from, strings.Fields(tc.flags)...).want(t, 0)
		s := asked(t, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, tc.from+"-STAMPED") })
		if got := strings.Join(s.CachedInfo().Config.Subjects, " "); got != tc.want {
			t.Errorf("the target of %s takes %s, want %s", tc.from, got, tc.want)
		}
	}
	natsid(t, "stamp", "--nats="+url, "--from=ORDERS", "--to=SECOND", "--tag=order", "--once", "--create").want(t, 1,
		"stream ORDERS-STAMPED takes some of stamped.orders.>", "--into")
	natsid(t, "stamp", "--nats="+url, "--from=NONE", "--to=SECOND", "--tag=order", "--create").want(t, 1,
		"there is no stream NONE to copy")
}

func TestARepairAsksBeforeStagesContinue(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	js := withOrders(t, url)
	args := []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED"}
	copies := append(slices.Clone(args), "--tag=order", "--create", "--once")
	publish(t, js, &nats.Msg{Subject: "orders.new", Data: []byte("0")})
	answered(t, copies...).want(t, 0)
	repair := append([]string{"stamp", "repair"}, args[1:]...)
	prints := func(got result, words ...string) {
		t.Helper()
		for got.want(t, 0); len(words) > 0; words = words[1:] {
			if !strings.Contains(got.out, words[0]) {
				t.Errorf("it prints %q, want %q", got.out, words[0])
			}
		}
	}
	prints(answered(t, repair...), "nothing to repair")
	publish(t, js, &nats.Msg{Subject: "stamped.orders.x"})
	publish(t, js, &nats.Msg{Subject: "stamped.orders.x"})
	s := asked(t, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, "STAMPED") })
	asked(t, func(ctx context.Context) (any, error) { return nil, s.DeleteMsg(ctx, 3) })
	publish(t, js, &nats.Msg{Subject: "orders.new", Data: []byte("1")})
	natsid(t, copies...).want(t, 1, "natsid stamp repair")
	natsid(t, repair...).want(t, 2, "position  1\nbehind    1\nforeign   1\ngone      1\nmissed    0\nstages stop: ",
		"was removed", "give --yes")
	answered(t, append(repair, "--dry-run")...).want(t, 0, "")
	natsid(t, copies...).want(t, 1, "natsid stamp repair")
	got := answered(t, append(repair, "--yes", "--json")...)
	if want := `{"position":1,"behind":1,"foreign":1,"gone":1,"missed":0}` + "\n"; got.out != want {
		t.Errorf("it prints %s, want %s: %s", got.out, want, got.err)
	}
	answered(t, copies...).want(t, 0)
	var bodies []string
	asked(t, func(ctx context.Context) (any, error) { return nil, s.DeleteMsg(ctx, 2) })
	for _, seq := range []uint64{1, 4} {
		m := asked(t, func(ctx context.Context) (*jetstream.RawStreamMsg, error) { return s.GetMsg(ctx, seq) })
		bodies = append(bodies, string(m.Data))
	}
	if fmt.Sprint(bodies) != "[0 1]" {
		t.Errorf("the target holds %v", bodies)
	}

	for range 3 {
		publish(t, js, &nats.Msg{Subject: "orders.new", Data: []byte("2")})
	}
	from := asked(t, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, "ORDERS") })
	asked(t, func(ctx context.Context) (any, error) { return nil, from.Purge(ctx, jetstream.WithPurgeSequence(5)) })
	natsid(t, copies...).want(t, 1, "messages 3 to 4 of stream ORDERS", "natsid stamp repair")
	status := append([]string{"stamp", "status"}, args[1:]...)
	prints(answered(t, status...), "missed    2\n", "stages stop: messages 3 to 4 of stream ORDERS")
	prints(answered(t, append(repair, "--yes")...), "done: stages continue after message 4 of ORDERS")
	answered(t, copies...).want(t, 0)
	prints(answered(t, status...), "position  5\nbehind    0\n")
}

func TestNothingIsMadeForATagThatGivesNoIDs(t *testing.T) {
	t.Parallel()
	url := serve(t, "--auto-create-tags=false").url
	js := withOrders(t, url)
	args := []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED", "--tag=nosuch", "--create", "--once"}
	answered(t, args...).want(t, 1, "natsid gives no IDs", "no such tag", "natsid tag create")
	for _, name := range []string{"STAMPED", "KV_id_stamp"} {
		asked(t, func(ctx context.Context) (any, error) {
			_, err := js.Stream(ctx, name)
			if err == nil {
				t.Errorf("stream %s was made", name)
			} else if errors.Is(err, jetstream.ErrStreamNotFound) {
				err = nil
			}
			return nil, err
		})
	}
}

func TestAStageSaysHowItIsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	worker := serve(t, "--http=127.0.0.1:0")
	url := worker.url
	js := withOrders(t, url)
	stage := start(t, "stamp", "--nats="+url, "--from=ORDERS", "--to=STAMPED", "--tag=order", "--create",
		"--http=127.0.0.1:0")
	defer func() {
		if end := stage.stop(); t.Failed() {
			t.Logf("%+v", end)
		}
	}()
	var at string
	wait.Until(t, "the address is logged", func() bool {
		_, rest, ok := strings.Cut(stage.err.String(), "http=")
		at, _, _ = strings.Cut(rest, "\n")
		return ok && strings.Contains(rest, "\n")
	})
	publish(t, js, &nats.Msg{Subject: "orders.new"})
	wait.Until(t, "a message is copied", func() bool {
		code, body := getFrom(t, "http://"+at+"/readyz")
		return code == 200 && body == "stamp: ready\ncopying: ORDERS to STAMPED, message 1, 0 behind\n"
	})
	page := regexp.MustCompile(`http://(\S+)/readyz`).FindStringSubmatch(worker.line)[1]
	wait.Until(t, "the worker's page shows the stage", func() bool {
		_, body := getFrom(t, "http://"+page)
		return strings.Contains(body, `data-label="To">STAMPED<`) && strings.Contains(body, "copying")
	})
	_, got := getFrom(t, "http://"+at+"/metrics")
	if !strings.Contains(got, `natsid_stamp_copied_total{from="ORDERS",to="STAMPED"} 1`) {
		t.Errorf("metrics: %s", got)
	}
	second := natsid(t, "stamp", "--nats="+url, "--from=ORDERS", "--to=STAMPED", "--tag=order", "--http="+at)
	second.want(t, 1, "--http "+at, "address already in use")
	if end, want := stage.stop(), "1 message copied, up to message 1 of ORDERS\n"; end.code != 0 || end.out != want {
		t.Errorf("%+v, want %q", end, want)
	}
	hints := messages(t, js, "KV_id_stamp")
	if len(hints) == 0 || !strings.Contains(string(hints[len(hints)-1].Data), `"last":1,`) {
		t.Errorf("the hints: %v", hints)
	}
}

// withOrders makes the stream ORDERS.
func withOrders(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	js := natstest.JetStream(t, url)
	asked(t, func(ctx context.Context) (jetstream.Stream, error) {
		return js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	})
	return js
}

// asked repeats a request to JetStream until it is answered: a request under way when a
// connection breaks is lost.
func asked[T any](t *testing.T, request func(context.Context) (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		answer, err := request(ctx)
		cancel()
		if err == nil {
			return answer
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// messages returns those of a stream.
func messages(t *testing.T, js jetstream.JetStream, stream string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	s := asked(t, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, stream) })
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		all = append(all, asked(t, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return s.GetMsg(ctx, seq)
		}))
	}
	return all
}

// publish publishes a message once, however often it is sent.
func publish(t *testing.T, js jetstream.JetStream, m *nats.Msg) {
	t.Helper()
	id := rand.Text()
	asked(t, func(ctx context.Context) (*jetstream.PubAck, error) {
		return js.PublishMsg(ctx, m, jetstream.WithMsgID(id))
	})
}
