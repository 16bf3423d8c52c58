package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

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
		info, err := natstest.Ask[subjects.TagInfo](patient(t), c.Conn, subjects.DefaultNamespace.TagUpdate(),
			subjects.TagUpdate{Tag: "order", Order: &order})
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
