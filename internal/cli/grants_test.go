package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/grants"
)

// entries returns the entries of the stream of grants of a server.
func entries(t *testing.T, url string) (all []grants.Batch) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	r, err := grants.Open(t.Context(), js, "id_grants", nil)
	if err != nil {
		return nil
	}
	bad, err := r.Scan(t.Context(), r.First, r.Last, func(_ grants.At, b *grants.Batch) bool {
		c := *b
		c.Loads = append([]grants.Load{}, b.Loads...)
		c.Windows = append([]grants.Window{}, b.Windows...)
		c.Writes = append([]grants.Write{}, b.Writes...)
		all = append(all, c)
		return true
	})
	if err != nil || bad > 0 {
		t.Fatalf("%d bad entries, %v", bad, err)
	}
	return all
}

// plant writes an entry as a worker would.
func plant(t *testing.T, url string, head grants.Head, lines ...string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	body, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	body = append(body, "\n"+strings.Join(lines, "\n")+"\n"...)
	if _, err := nc.Request("$KV.id_grants.log", body, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestAnIDIsExplainedAndAPlantedOverlapIsFound(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=eu-1")
	nats := "--nats=" + s.url
	answered(t, "get", "segment", "order", nats, "-n2500").want(t, 0, "")
	snowflake := strings.TrimSpace(answered(t, "get", "snowflake", nats).out)
	deadline := time.Now().Add(2 * time.Minute)
	loads, windows := 0, 0
	var head grants.Head
	for loads == 0 || windows == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no grant is written down")
		}
		loads, windows = 0, 0
		for _, b := range entries(t, s.url) {
			loads, windows, head = loads+len(b.Loads), windows+len(b.Windows), b.Head
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, tc := range []struct {
		args  []string
		words []string
	}{
		{[]string{"explain", "1234", "--tag=order"}, []string{"worker    eu-1, process " + head.Process, "of tag order",
			"number    ", "bucket id_segments, registry " + head.Segments, time.Now().UTC().Format("2006-01-02")}},
		{[]string{"explain", "1234"}, []string{"of tag order", "worker    eu-1"}},
		{[]string{"explain", snowflake}, []string{"worker    eu-1", "acquired", "registry " + head.Numbers}},
		{[]string{"audit"}, []string{"of 1 tag ", "tags        1 proven, 0 repeated, 0 not proven",
			"numbers     1 proven, 0 repeated, 0 not proven", "verdict     proven: no ID was granted twice"}},
		{[]string{"audit", "--tag=order", "--since=1h"}, []string{"proven: no ID was granted twice"}},
		{[]string{"audit", "--json"},
			[]string{`"verdict":"proven"`, `"tags":{"proven":1,"repeated":0,"not_proven":0}`}},
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
	// Another worker says that it was given some of these IDs, and the number.
	var number, from = 0, int64(0)
	for _, b := range entries(t, s.url) {
		for _, w := range b.Windows {
			number, from = w.Number, w.From
		}
	}
	thief := head
	thief.Instance, thief.Process, thief.Entry = "us-1", "THIEF", 1
	plant(t, s.url, thief, "t 9 1200 1250 5 1 1700000000000   order",
		fmt.Sprintf("w %d %d %d acquired 1", number, from+1, from+9))
	if got := answered(t, "audit", nats); got.code != 1 ||
		!strings.Contains(got.out, "numbers     0 proven, 0 repeated, 1 not proven") ||
		!strings.Contains(got.out, "it may have released the number") {
		t.Errorf("while the worker may have stopped: %+v", got)
	}
	n := len(entries(t, s.url))
	answered(t, "get", "segment", "alive", nats).want(t, 0, "")
	for ; n == len(entries(t, s.url)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the load is not written down")
		}
	}
	got := answered(t, "audit", nats)
	if got.code != 1 || !strings.Contains(got.out, "verdict     repeated") ||
		!strings.Contains(got.err, "IDs of 1 tag and 1 worker number were granted twice") {
		t.Errorf("with an overlap: %+v", got)
	}
	for _, w := range []string{"tag order: ", "worker number ", "us-1, process THIEF", "eu-1, process " + head.Process,
		"share 1200-1250"} {
		if !strings.Contains(got.out, w) {
			t.Errorf("no %q in\n%s", w, got.out)
		}
	}
	if got := answered(t, "explain", "1234", "--tag=order", nats); !strings.Contains(got.out, "2 grants contain it") {
		t.Errorf("%+v", got)
	}
	thief.Entry = 5
	plant(t, s.url, thief, fmt.Sprintf("t 9 90000000 90000001 9000000000000000 1 %d   alive", time.Now().UnixMilli()))
	got = answered(t, "audit", nats)
	if got.code != 1 || !strings.Contains(got.out, "process THIEF had written a later one, 90000002: the marks") ||
		!strings.Contains(got.out, "tags        0 proven, 1 repeated, 1 not proven") ||
		!strings.Contains(got.out, "3 entries;") {
		t.Errorf("with a load above the mark: %s", got.out)
	}
	thief.Entry = 6
	plant(t, s.url, thief, "d 1200 1250 1700000000000 order")
	got = answered(t, "audit", nats)
	if !strings.Contains(got.out, "tags        0 proven, 0 repeated, 2 not proven") ||
		!strings.Contains(got.out, "harmless    tag order: 1") ||
		!strings.Contains(got.out, "discarded these IDs, and issued none") {
		t.Errorf("with a range that was discarded: %s", got.out)
	}
}

func TestAWriteThatGrantsNothingIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=eu-1")
	nats := "--nats=" + s.url
	answered(t, "tag", "create", "order", "--step=100", nats).want(t, 0, "")
	answered(t, "get", "segment", "order", nats).want(t, 0, "")
	answered(t, "tag", "update", "order", "--step=200", nats).want(t, 0, "")
	answered(t, "tag", "update", "order", "--raise-by=5000", nats).want(t, 0, "")
	answered(t, "tag", "delete", "order", nats).want(t, 0, "")
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	answered(t, "get", "segment", "order", nats).want(t, 0, "")
	s.stop() // it writes down all
	// Its own nats-server ends with it.
	again := serve(t, "--name=eu-1", "--data="+s.data)
	nats = "--nats=" + again.url
	got := answered(t, "audit", nats)
	if got.code != 0 || !strings.Contains(got.out, "tags        1 proven") || strings.Contains(got.out, "held") {
		t.Errorf("%+v", got)
	}
	hows := make(map[string]int)
	for _, b := range entries(t, again.url) {
		for _, w := range b.Writes {
			hows[w.How]++
		}
	}
	for _, how := range []string{"create", "update", "raise", "delete", "revive"} {
		if hows[how] == 0 {
			t.Errorf("no %s is among the writes: %v", how, hows)
		}
	}
}

func TestWithGrantsOffNothingIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := serve(t, "--grants=off")
	nats := "--nats=" + s.url
	answered(t, "get", "segment", "order", nats).want(t, 0, "")
	natsid(t, "audit", nats).want(t, 3, "there is no stream of grants")
	natsid(t, "explain", "5", "--tag=order", nats).want(t, 3, "there is no stream of grants")
	s.stop()
	if e := natsid(t, "audit", nats); e.code != 3 {
		t.Errorf("%+v", e)
	}
}
