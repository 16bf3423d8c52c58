package tests

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/e2e"
	orders "github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/subjects"
)

// strictly creates a strict tag, again if a busy machine refuses it.
func strictly(t *testing.T, c *e2e.Cluster, tag string) {
	t.Helper()
	waitFor(t, "a strict tag", func() bool {
		_, err := c.Client.CreateTag(t.Context(), subjects.TagCreate{Tag: tag, Order: subjects.OrderStrict})
		return err == nil
	})
}

func TestIDsOfAStrictTagRiseOverAllWorkers(t *testing.T) {
	c := e2e.Start(t, e2e.WithWorkers(3), configured(inNoHurry))
	strictly(t, c, "invoice")
	subject := subjects.DefaultNamespace.Segment("invoice")
	const callers, requests = 8, 40
	var order orders.Order
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for range requests {
				had := order.Begin()
				m, err := c.Conn.Request(subject, fmt.Append(nil, 1+i%3), patience)
				if err != nil || subjects.ParseError(m.Header) != nil {
					continue // a busy machine
				}
				runs, err := subjects.ParseRuns(m.Data)
				if err != nil || len(runs) != 1 || runs[0].Len() != int64(1+i%3) {
					t.Errorf("%q, %v, want one run of %d", m.Data, err, 1+i%3)
					return
				}
				if _, err := order.End(had, runs[0].First, runs[0].Last); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if r := order.Report(); r.Inversions > 0 || r.Answers < callers*requests/2 {
		t.Errorf("%+v", r)
	}
}

// The message that a tag is strict may come later than the first request for it.
func TestATagIsStrictFromItsFirstRequestOn(t *testing.T) {
	c := e2e.Start(t, e2e.WithWorkers(3), configured(inNoHurry))
	js, err := jetstream.New(c.Conn, jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	settings := "$KV." + subjects.DefaultNamespace.SegmentBucket() + "._natsid.s.order."
	last := make(map[string]int64)
	for i := range 40 {
		tag := fmt.Sprint("fresh", i%8)
		if i < 8 { // tells no worker
			if _, err := js.Publish(t.Context(), settings+tag, []byte(`{"order":"strict"}`)); err != nil {
				t.Fatal(err)
			}
		}
		m, err := c.Conn.Request(subjects.DefaultNamespace.Segment(tag), nil, patience)
		if err != nil || subjects.ParseError(m.Header) != nil {
			continue // a busy machine
		}
		runs, err := subjects.ParseRuns(m.Data)
		if err != nil || runs[0].First <= last[tag] {
			t.Errorf("%q after %d: %v", m.Data, last[tag], err)
		}
		last[tag] = runs[0].Last
	}
}

func TestATagBecomesStrictInAllWorkers(t *testing.T) {
	c := e2e.Start(t, e2e.WithWorkers(3), configured(inNoHurry))
	subject := subjects.DefaultNamespace.Segment("order")
	ask := func() (id int64) {
		waitFor(t, "an ID", func() bool {
			runs, err := request(c.Conn, subject, 1, patience)
			if err == nil {
				id = runs[0].First
			}
			return err == nil
		})
		return id
	}
	for range 30 { // all have ranges of it
		ask()
	}
	order := subjects.OrderStrict
	waitFor(t, "it is strict", func() bool {
		info, err := c.Client.UpdateTag(t.Context(), subjects.TagUpdate{Tag: "order", Order: &order})
		return err == nil && info.Order == subjects.OrderStrict && info.StrictFrom != nil
	})
	last := int64(0)
	for range 60 {
		id := ask()
		if id <= last {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
	tags, err := c.Client.ListTags(patient(t), subjects.TagList{})
	if err != nil || !strings.Contains(fmt.Sprint(tags), subjects.OrderStrict) {
		t.Errorf("%+v, %v, want a strict tag in the list", tags, err)
	}
}
