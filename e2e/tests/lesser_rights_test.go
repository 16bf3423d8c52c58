package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// usedBy returns the command that needs a right of a caller or an operator; "" if none does here.
func usedBy(r rights.Right) string {
	for _, use := range [][2]string{
		{"id.segment.", "get segment order"},
		{"id.snowflake.>", ""}, {"id.snowflake", "get snowflake"},
		{"id.tag.create", "tag create seat"}, {"id.tag.update", "tag update order --step 5"},
		{"id.tag.delete", "tag delete order -y"}, {"id.tag.list", "tag list"},
		{"id.control.throttle", "throttle 5 -y"},
		{"id.worker.view", "status"},
		{"id.registry.", ""}, {"id.alarm.", ""}, // with two registries, alarms
		{"$JS.API.STREAM.MSG.GET.KV_id_grants", ""}, // if JetStream delivers fewer entries than it has
		{"_INBOX.", "tag list"},
	} {
		if strings.HasPrefix(r.Subject, use[0]) {
			return use[1]
		}
	}
	if strings.Contains(r.Subject, "KV_id_grants") {
		return "audit --since 1h"
	}
	if strings.Contains(r.Subject, "KV_id_segments") {
		return "status"
	}
	return "workers"
}

func TestACommandNamesEachRightThatIsTakenAway(t *testing.T) {
	t.Parallel()
	type lesser struct {
		user  string
		right rights.Right
	}
	var all []lesser
	users := map[string]*server.Permissions{"worker": permitted(rights.Worker), "operator": permitted(rights.Operator)}
	for _, role := range []rights.Role{rights.Caller, rights.Operator} {
		of := rightsOf(role)
		for i, r := range slices.Concat(of.Publish, of.Subscribe) {
			less := rights.Rights{Publish: slices.Clone(of.Publish), Subscribe: slices.Clone(of.Subscribe)}
			if n := len(of.Publish); i < n {
				less.Publish = slices.Delete(less.Publish, i, i+1)
			} else {
				less.Subscribe[i-n] = rights.Right{Subject: "none"} // no rights at all would be all
			}
			name := fmt.Sprintf("%s%d", role, i)
			users[name] = allow(less)
			all = append(all, lesser{name, r})
		}
	}
	s := serverOf(t, users)
	cfg := configOn(t, urlOf(s, "worker"), t.TempDir())
	cfg.Name = "eu-1"
	startWith(t, cfg)
	wait.Until(t, "the worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	wait.Until(t, "a grant is written down", func() bool {
		code, _ := run(t, patient(t), "audit", "--nats="+urlOf(s, "operator"))
		return code == 0
	})
	for _, l := range all {
		command := usedBy(l.right)
		if command == "" {
			continue
		}
		if strings.HasPrefix(l.user, "caller") && l.right.Subject == "_INBOX.>" {
			command = "get snowflake"
		}
		t.Run(l.user+" without "+l.right.String(), func(t *testing.T) {
			t.Parallel()
			literal, _, _ := strings.Cut(strings.TrimSuffix(l.right.Subject, ">"), "*")
			_, text := run(t, patient(t), append(strings.Fields(command), "--nats="+urlOf(s, l.user))...)
			if !strings.Contains(text, "this user of NATS may not ") || !strings.Contains(text, " to "+literal) {
				t.Errorf("%s does not name %s: %s", command, l.right, text)
			}
		})
	}
}

func TestACallerMayDoNothingButRequestIDs(t *testing.T) {
	t.Parallel()
	prefixed := func(prefix string) *server.Permissions {
		return allow(rightsOf(rights.Caller, func(d *rights.Deployment) { d.InboxPrefix = prefix }))
	}
	s := serverOf(t, map[string]*server.Permissions{
		"worker": allow(rightsOf(rights.Worker, func(d *rights.Deployment) {
			d.ReplyTo = []string{shopInbox, "_INBOX_desk"}
		})),
		"shop": prefixed(shopInbox), "desk": prefixed("_INBOX_desk"), "operator": permitted(rights.Operator),
	})
	seen := new(violations)
	s.SetLoggerV2(seen, false, false, false)
	startReady(t, urlOf(s, "worker"))
	refused := make(chan error, 1)
	nc := natstest.Connect(t, urlOf(s, "shop"), nats.CustomInboxPrefix(shopInbox),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	getIDs(t, nc, "id", "order")
	want := func(what string, err error) {
		t.Helper()
		if err == nil {
			select {
			case err = <-refused:
			case <-time.After(patience):
				t.Fatalf("%s is not refused", what)
			}
		}
		if !strings.Contains(err.Error(), `to "`+what+`"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, subject := range []string{
		"id.tag.create", "id.tag.update", "id.tag.delete", "id.tag.list", "id.tag.changed",
		"id.alarm.overload", "id.registry.announce", "id.relay.segment.order",
		"id.control.throttle", "id.worker.1", "$SRV.PING", "$SRV.STATS.id",
		"$KV.id_segments.order", "$KV.id_history.1", "$KV.id_segments._natsid", "$JS.API.INFO",
		"$JS.API.STREAM.MSG.GET.KV_id_segments", "$JS.API.DIRECT.GET.KV_id_segments.$KV.id_segments.order",
		"$JS.API.STREAM.DELETE.KV_id_segments", "$JS.API.CONSUMER.CREATE.KV_id_segments", "_INBOX_desk.x", "_INBOX.x",
	} {
		want(subject, nc.PublishRequest(subject, nc.NewInbox(), []byte(`{"tag":"order"}`)))
	}
	for _, subject := range []string{
		">", "_INBOX.>", "_INBOX_desk.>", "id.>", "id.worker.*", "id.worker.1", "id.segment.>", "id.tag.changed",
		"id.alarm.*", "$KV.>", "$SRV.>", "$JS.API.>",
	} {
		_, err := nc.SubscribeSync(subject)
		want(subject, err)
	}
	// Nor may it take the requests of others.
	_, err := nc.QueueSubscribeSync("id.segment.>", "natsid")
	want("id.segment.>", err)
	tags, err := clientOn(natstest.Connect(t, urlOf(s, "operator"))).ListTags(patient(t), subjects.TagList{})
	if err != nil || len(tags) != 1 || tags[0].Tag != "order" || tags[0].Disabled {
		t.Errorf("the tags are %v, %v", tags, err)
	}
}
