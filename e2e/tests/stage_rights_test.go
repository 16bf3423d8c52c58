package tests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// stamping are the rights of a stage that copies ORDERS to COPIES.
func stamping() rights.Rights {
	return rightsOf(rights.Stage, func(d *rights.Deployment) {
		d.Stamps = rights.Pipeline{
			From: "ORDERS", To: "COPIES", Into: "stamped.>", Creates: true, DeadLetter: "dead.orders",
		}
	})
}

const stampOrders = "stamp --from=ORDERS --to=COPIES --tag=order --filter=orders.new --existing=dead-letter " +
	"--dead-letter=dead.orders --create --once --nats="

func TestAStageNeedsWhatPermissionsPrints(t *testing.T) {
	t.Parallel()
	all := stamping()
	users := map[string]*server.Permissions{"worker": permitted(rights.Worker), "admin": nil, "stage": allow(all)}
	lacks := make(map[string]rights.Right)
	for i, r := range slices.Concat(all.Publish, all.Subscribe) {
		less := rights.Rights{Publish: slices.Clone(all.Publish), Subscribe: slices.Clone(all.Subscribe)}
		if n := len(all.Publish); i < n {
			less.Publish = slices.Delete(less.Publish, i, i+1)
		} else {
			less.Subscribe[i-n] = rights.Right{Subject: "none"}
		}
		user := fmt.Sprint("less", i)
		users[user], lacks[user] = allow(less), r
	}
	s := serverOf(t, users)
	seen := new(violations)
	s.SetLoggerV2(seen, false, false, false)
	startReady(t, urlOf(s, "worker"))
	js := natstest.JetStream(t, urlOf(s, "admin"))
	for name, subject := range map[string]string{"ORDERS": "orders.>", "DEAD": "dead.>"} {
		cfg := jetstream.StreamConfig{Name: name, Subjects: []string{subject}}
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(subject string, headers ...string) {
		t.Helper()
		m := nats.NewMsg(subject)
		for i := 0; i+1 < len(headers); i += 2 {
			m.Header.Set(headers[i], headers[i+1])
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		publish("orders.new")
	}
	publish("orders.new", "Natsid-Id", "7")
	publish("orders.old")
	for _, want := range []string{"3 messages copied", "0 messages copied"} {
		code, text := run(t, patient(t), strings.Fields(stampOrders+urlOf(s, "stage"))...)
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("it ended with %d, want %q: %s", code, want, text)
		}
	}
	seen.report(t)
	for user, right := range lacks {
		publish("orders.new")
		publish("orders.new", "Natsid-Id", "7")
		if strings.HasPrefix(right.Why, "make ") {
			err := js.DeleteStream(t.Context(), "COPIES")
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatal(err)
			}
		}
		code, text := run(t, patient(t), strings.Fields(stampOrders+urlOf(s, user))...)
		if strings.HasPrefix(right.Why, "make ") { // the next one needs what is in the target
			run(t, patient(t), strings.Fields(stampOrders+urlOf(s, "stage"))...)
		}
		literal, _, _ := strings.Cut(strings.TrimSuffix(right.Subject, ">"), "*")
		named := strings.Contains(text, "this user of NATS may not ") && strings.Contains(text, literal)
		switch {
		case right.Why == "end reading", right.Subject == "id.worker.stage",
			right.Subject == "id.snowflake", right.Subject == "id.snowflake.>",
			strings.Contains(right.Subject, "id_stamp"), strings.Contains(right.Subject, "STREAM.UPDATE"),
			right.Subject == "$JS.API.INFO":
			if code != 0 {
				t.Errorf("without %s, which it does not need, it ended with %d: %s", right, code, text)
			}
		case code != 3 || !named:
			t.Errorf("it ended with %d, and does not name %s: %s", code, right, text)
		}
	}
}
