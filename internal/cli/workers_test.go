package cli_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/workerid"
)

func TestWorkersShowWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t, natstest.Start(t))
	registry := kvregistry.New(js, kvregistry.Config{
		History: "id_history", Workers: "id_workers", LeaseTTL: 30 * time.Second,
	})
	now, deployment := time.Now().UnixMilli(), workerid.Deployment{ID: "R", Layout: "41+10+12", Unit: 1}
	for w, behind := range []int64{3, 1234, -400_000, 0} {
		record := workerid.Record{Instance: "a", Token: "t", Until: now + 1000, Deployment: deployment}
		if _, err := registry.Write(t.Context(), w, record); err != nil {
			t.Fatal(err)
		}
		beat := workerid.Heartbeat{Instance: "a", Time: time.Now().UnixMilli() - behind, Since: now}
		if err := registry.Report(t.Context(), w, beat); err != nil {
			t.Fatal(err)
		}
	}
	ahead := time.Date(2061, 2, 3, 4, 5, 6, 0, time.UTC)
	record := workerid.Record{
		Instance: "future", Token: "t", Reported: ahead.UnixMilli(), Until: ahead.UnixMilli() + 60_000,
		Deployment: deployment,
	}
	if _, err := registry.Write(t.Context(), 4, record); err != nil {
		t.Fatal(err)
	}
	got := answered(t, "workers", "--nats", js.Conn().ConnectedUrl())
	// A busy machine adds to an offset the time that its report took.
	const dates, live = ` +[-\d]+T[:\d]+Z +[-\d]+T[:\d]+Z`, ` +a +- +live +[-\d]+T[:\d]+Z +`
	if got.want(t, 0, ""); !matchLines(got.out, `NUMBER +INSTANCE +PROGRAM ON +STATE +SINCE +OFFSET +REPORTED +UNTIL`,
		`0`+live+`-[\d.]+m?s`+dates,
		`1`+live+`-\d\d?(?:\.\d)?s`+dates,
		`2`+live+`\+6m[34]\ds`+dates,
		`3`+live+`[+-]?[\d.]+m?s`+dates,
		`4 +future +- +blocked +- +- +2061-02-03T04:05:06Z +2061-02-03T04:06:06Z`) {
		t.Errorf("listed\n%s", got.out)
	}
}

func TestListingWorkersCreatesNoBucket(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	js := natstest.JetStream(t, url)
	natsid(t, "workers", "--nats", url).want(t, 1, "no natsid has run")
	// One of the two exists. The other must not be created: with heartbeats that
	// never expire.
	history := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "id_history"})
	if err := history.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	natsid(t, "workers", "--nats", url)
	for name := range js.KeyValueStoreNames(t.Context()).Name() {
		if name != "id_history" {
			t.Errorf("the bucket %s was created", name)
		}
	}
}

func TestWorkersNamesTheBucketWhoseServersAreAway(t *testing.T) {
	t.Parallel()
	nc := natstest.JetStream(t, natstest.Start(t)).Conn()
	const offline = `{"error":{"code":500,"err_code":10118,"description":"stream is offline"}}`
	if _, err := nc.Subscribe("far.>", func(m *nats.Msg) { _ = m.Respond([]byte(offline)) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	got := natsid(t, "workers", "--nats", nc.ConnectedUrl(), "--js-prefix=far")
	got.want(t, 1, "bucket id_workers", "no NATS server that holds its stream is up")
}
