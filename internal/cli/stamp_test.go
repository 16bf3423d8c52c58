package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/stamp"
)

func TestStampCopiesAStreamWithIDs(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	js := withOrders(t, url)
	for i := range 5 {
		if _, err := js.Publish(t.Context(), "orders.new", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED", "--once"}
	natsid(t, args...).want(t, 2, "one of --tag, --tag-from and --snowflake")
	natsid(t, append(args, "--tag=order", "--snowflake")...).want(t, 2, "one of --tag, --tag-from and --snowflake")
	natsid(t, append(args, "--tag=a b")...).want(t, 2, `tag "a b"`)
	natsid(t, append(args, "--tag=order", "--into=stamped.*")...).want(t, 2, `--into "stamped.*"`)
	natsid(t, append(args, "--tag=order", "--to=ORDERS")...).want(t, 2, "copy to another stream")
	natsid(t, append(args, "--tag=order")...).want(t, 1, "there is no stream STAMPED", "--create")
	natsid(t, append(args, "--tag=order", "--create", "--subject=other.>")...).want(t, 1, "orders.new", "--subject")

	for _, n := range []int{5, 0} {
		want := fmt.Sprintf("%d messages copied, up to message 5 of ORDERS\n", n)
		got := natsid(t, append(args, "--tag=order", "--create", "--subject=orders.>", "--into=stamped.>")...)
		if got.want(t, 0, ""); got.out != want {
			t.Errorf("it prints %q, want %q", got.out, want)
		}
	}
	got := natsid(t, append(args, "--snowflake", "--json")...).out
	if want := `{"copied":0,"dead_letters":0,"dropped":0,"position":5,"behind":0}` + "\n"; got != want {
		t.Errorf("it prints %s, want %s", got, want)
	}
	s, err := js.Stream(t.Context(), "STAMPED")
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(5) {
		m, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		id, err := stamp.IDIn(m.Header)
		if err != nil || int(id) != int(seq)+1 || m.Subject != "stamped.new" || string(m.Data) != fmt.Sprint(seq) {
			t.Errorf("message %d: %q on %s, ID %v, %v", seq+1, m.Data, m.Subject, id, err)
		}
		if time.Since(m.Time) > time.Minute {
			t.Errorf("it was written at %v", m.Time)
		}
	}
}

func TestAStageSaysHowItIsUntilItIsStopped(t *testing.T) {
	url := serve(t).url
	js := withOrders(t, url)
	ctx, stop := context.WithCancel(context.Background())
	var out, errs natstest.Buffer
	code, done := -1, make(chan struct{})
	go func() {
		defer close(done)
		code = cli.Main(ctx, []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED", "--tag=order",
			"--create", "--http=127.0.0.1:0"}, &out, &errs)
	}()
	defer func() {
		stop()
		if <-done; t.Failed() {
			t.Logf("it ends with %d: %s", code, errs.String())
		}
	}()
	var at string
	eventually(t, "the address is logged", func() bool {
		_, rest, ok := strings.Cut(errs.String(), "http=")
		at, _, _ = strings.Cut(rest, "\n")
		return ok && strings.Contains(rest, "\n")
	})
	get := func(path string) string {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.Status + "\n" + string(body)
	}
	if _, err := js.Publish(t.Context(), "orders.new", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a message is copied", func() bool {
		return get("/readyz") == "200 OK\nstamp: ready\ncopying: ORDERS to STAMPED, message 1, 0 behind\n"
	})
	if got := get("/metrics"); !strings.Contains(got, `natsid_stamp_copied_total{from="ORDERS",to="STAMPED"} 1`) {
		t.Errorf("metrics: %s", got)
	}
	second := natsid(t, "stamp", "--nats="+url, "--from=ORDERS", "--to=STAMPED", "--tag=order", "--http="+at)
	second.want(t, 1, "--http "+at, "address already in use")
	stop()
	<-done
	if want := "1 messages copied, up to message 1 of ORDERS\n"; code != 0 || out.String() != want {
		t.Errorf("it ends with %d and %q, want 0 and %q: %s", code, out.String(), want, errs.String())
	}
	kv, err := js.KeyValue(t.Context(), "id_stamp")
	if err != nil {
		t.Fatal(err)
	}
	if hint, err := kv.Get(t.Context(), "STAMPED"); err != nil || !strings.Contains(string(hint.Value()), `"last":1,`) {
		t.Errorf("the hint: %v, %v", hint, err)
	}
}

// withOrders makes the stream ORDERS.
func withOrders(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.>"},
	}); err != nil {
		t.Fatal(err)
	}
	return js
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestCoreCopiesWhatIsPublished(t *testing.T) {
	url := serve(t).url
	args := []string{"stamp", "--nats=" + url, "--core=events.>", "--snowflake"}
	for flag, want := range map[string]string{
		"--into=events.ids.>": "would be copied again", "--into=>": "would be copied again", "--once": "--once",
		"--from=ORDERS": "--from", "--tag-from=subject:1": "one of", "--existing=dead-letter": "existing",
	} {
		natsid(t, append(args, flag)...).want(t, 2, want)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	copies := make(chan *nats.Msg, 1000)
	if _, err := nc.ChanSubscribe("stamped.>", copies); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var outs [2]natstest.Buffer
	var codes [2]int
	var running sync.WaitGroup
	for i := range outs {
		running.Go(func() {
			all := append(args, "--into=stamped.>", "--json", "--http=127.0.0.1:0")
			codes[i] = cli.Main(ctx, all, &outs[i], &outs[i])
		})
	}
	defer func() {
		stop()
		if running.Wait(); t.Failed() {
			t.Logf("%s\n%s", outs[0].String(), outs[1].String())
		}
	}()
	publish := func(subject, data string, header nats.Header) {
		m := &nats.Msg{Subject: subject, Reply: "answers.to", Data: []byte(data), Header: header}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both stages are connected", func() bool {
		return strings.Contains(outs[0].String(), "http=") && strings.Contains(outs[1].String(), "http=")
	})
	eventually(t, "a stage hears", func() bool {
		publish("events.first", "", nil)
		select {
		case <-copies:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	const n = 300
	for i := range n {
		publish("events.new", fmt.Sprint(i), nats.Header{"Colour": {"red"}, "Nats-Msg-Id": {"m"}})
	}
	publish("events.new", "it has one", nats.Header{stamp.Header: {"7"}})
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	stop() // what was heard before is copied
	running.Wait()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ids, seen := map[client.ID]bool{}, map[string]bool{}
	for len(copies) > 0 {
		m := <-copies
		id, err := stamp.ID(m)
		if err != nil || ids[id] {
			t.Errorf("%s: ID %v, %v", m.Subject, id, err)
		}
		ids[id] = true
		if m.Subject == "stamped.first" {
			continue
		}
		if seen[string(m.Data)] || m.Subject != "stamped.new" || m.Reply != "answers.to" ||
			m.Header.Get("Colour") != "red" || m.Header.Get("Nats-Msg-Id") != "" {
			t.Errorf("%q on %s, reply to %s, headers %v", m.Data, m.Subject, m.Reply, m.Header)
		}
		seen[string(m.Data)] = true
	}
	out := outs[0].String() + outs[1].String()
	if len(seen) != n || codes != [2]int{} || !strings.Contains(out, `"dropped":1,`) {
		t.Errorf("%d messages are copied, want %d; codes %v: %s", len(seen), n, codes, out)
	}
}
