package cli_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/stamp"
)

func TestStampCopiesAStreamWithIDs(t *testing.T) {
	url := serve(t).url
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.>"},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := js.Publish(t.Context(), "orders.new", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"stamp", "--nats=" + url, "--from=ORDERS", "--to=STAMPED", "--once"}
	natsid(t, args...).want(t, 2, "either --tag or --snowflake")
	natsid(t, append(args, "--tag=order", "--snowflake")...).want(t, 2, "either --tag or --snowflake")
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
	if want := `{"copied":0,"position":5,"behind":0}` + "\n"; got != want {
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
