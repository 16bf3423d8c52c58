package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/workerid"
)

// recorded returns what the stream of grants of a server has.
func recorded(t *testing.T, js jetstream.JetStream) (h grants.History) {
	t.Helper()
	_ = h.Read(t.Context(), js, buckets.OnJetStream(js), "id_grants", time.Time{}) // after an error it has nothing
	return h
}

func TestAnIDIsExplainedAndAPlantedOverlapIsFound(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=eu-1")
	nats := "--nats=" + s.url
	answered(t, "get", "segment", "order", nats, "-n2500").want(t, 0, "")
	snowflake := strings.TrimSpace(answered(t, "get", "snowflake", nats).out)
	js := natstest.JetStream(t, s.url)
	wait.Until(t, "a load and a window are written down", func() bool {
		h := recorded(t, js)
		return h.Loads > 0 && h.Windows > 0
	})
	who := recorded(t, js).Claims[0].Who
	window := *recorded(t, js).Claims[0].Window
	for _, tc := range []struct {
		args  []string
		words []string
	}{
		{[]string{"explain", "1234", "--tag=order"}, []string{"worker    eu-1, process " + who.Process, "of tag order",
			time.Now().UTC().Format("2006-01-02")}},
		{[]string{"explain", "1234"}, []string{"of tag order", "worker    eu-1"}},
		{[]string{"explain", snowflake}, []string{"worker    eu-1", "acquired", "sequence  "}},
		{[]string{"audit"}, []string{"of 1 tag, ", "verdict  proven: no ID was granted twice"}},
		{[]string{"audit", "--tag=order", "--since=1h"}, []string{"proven: no ID was granted twice"}},
		{[]string{"audit", "--json"}, []string{`"verdict":"proven"`, `"tags":1`}},
	} {
		got := answered(t, append(tc.args, nats)...)
		got.want(t, 0)
		for _, w := range tc.words {
			if !strings.Contains(got.out, w) {
				t.Errorf("%q: no %q in\n%s", tc.args, w, got.out)
			}
		}
	}
	for _, id := range []string{"123456789 --tag=order", "5 --tag=seat", "4194324557", "9223372036854775807"} {
		got := answered(t, append(append([]string{"explain"}, strings.Fields(id)...), nats)...)
		if got.code != 1 || !strings.Contains(got.err, "no grant that is written down contains") {
			t.Errorf("explain %s: %+v", id, got)
		}
	}
	mistyped := answered(t, "audit", "--tag=oder", nats)
	if mistyped.code != 1 || !strings.Contains(mistyped.err, "`natsid tag list`") {
		t.Errorf("of a mistyped tag: %+v", mistyped)
	}
	// Another worker says that it was given some of these IDs, and the number.
	thief := grants.Entry{Who: who, N: 1}
	thief.Loads = map[string][]grants.Load{"order": {{First: 1200, Last: 1250}}}
	thief.Instance, thief.Process = "us-1", "THIEF"
	thief.Windows = []workerid.Window{{Number: window.Number, From: window.From + 1, Until: window.Until}}
	body, err := json.Marshal(thief)
	if err == nil {
		_, err = js.Publish(t.Context(), "$KV.id_grants.log", body)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := recorded(t, js).Entries
	answered(t, "get", "segment", "alive", nats).want(t, 0, "")
	wait.Until(t, "the load is written down", func() bool { return recorded(t, js).Entries > n })
	got := answered(t, "audit", nats)
	if got.code != 1 || !strings.Contains(got.out, "verdict   repeated") ||
		!strings.Contains(got.err, "IDs were granted twice") {
		t.Errorf("with an overlap: %+v", got)
	}
	for _, w := range []string{"repeated  tag order: IDs 1200-1250", "repeated  worker number ",
		"us-1, process THIEF", "eu-1, process " + who.Process} {
		if !strings.Contains(got.out, w) {
			t.Errorf("no %q in\n%s", w, got.out)
		}
	}
	for _, id := range []string{"1234", snowflake} {
		if got := answered(t, "explain", id, nats); !strings.Contains(got.out, "2 grants contain it") {
			t.Errorf("%+v", got)
		}
	}
}

func TestARaisedMarkIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=eu-1")
	nats := "--nats=" + s.url
	answered(t, "tag", "create", "order", "--step=100", nats).want(t, 0, "")
	answered(t, "tag", "create", "daily", "--daily", nats).want(t, 0, "")
	for _, tag := range []string{"order", "daily"} {
		answered(t, "get", "segment", tag, nats).want(t, 0, "")
	}
	answered(t, "tag", "update", "order", "--step=200", nats).want(t, 0, "")
	answered(t, "tag", "update", "order", "--raise-by=5000", nats).want(t, 0, "")
	answered(t, "tag", "delete", "order", "-y", nats).want(t, 0, "")
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	answered(t, "get", "segment", "order", nats).want(t, 0, "")
	s.stop() // it writes down all
	// Its own nats-server ends with it.
	again := serve(t, "--name=eu-1", "--data="+s.data)
	nats = "--nats=" + again.url
	if got := answered(t, "audit", nats); got.code != 0 || !strings.Contains(got.out, "of 2 tags") {
		t.Errorf("%+v", got)
	}
	if got := answered(t, "explain", "5000", "--tag=order", nats); got.code != 0 ||
		!strings.Contains(got.out, "of tag order: a raise to ") || !strings.Contains(got.out, "worker    eu-1") {
		t.Errorf("an ID that a raise left out: %+v", got)
	}
}

// JetStream's requests reach somebody who never answers.
func TestCommandsThatReadGrantsEndWhereJetStreamIsSilent(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	nc := natstest.Connect(t, url)
	if _, err := nc.SubscribeSync("silent.>"); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"audit", "explain 5 --tag=order"} {
		t.Run(strings.Fields(c)[0], func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(c), "--nats="+url, "--js-prefix=silent")
			if got := natsid(t, args...); got.code != 1 || !strings.Contains(got.err, "JetStream does not answer") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestWithGrantsOffNothingIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := serve(t, "--grants=off")
	nats := "--nats=" + s.url
	answered(t, "get", "segment", "order", nats).want(t, 0, "")
	natsid(t, "audit", nats).want(t, 1, "there is no stream of grants")
	natsid(t, "explain", "5", "--tag=order", nats).want(t, 1, "there is no stream of grants")
}
