package tests

import (
	"testing"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestTheIDsOfAStrictTagRiseOverAllWorkers(t *testing.T) {
	c := e2e.Start(t, e2e.WithWorkers(3), configured(inNoHurry))
	waitFor(t, "it is made", func() bool {
		info, err := natstest.Ask[subjects.TagInfo](patient(t), c.Conn, subjects.DefaultNamespace.TagCreate(),
			subjects.TagCreate{Tag: "invoice", Strict: true})
		return err == nil && info.Strict
	})
	last := int64(0)
	for i := range 60 {
		waitFor(t, "an ID", func() bool {
			runs, err := request(c.Conn, subjects.DefaultNamespace.Segment("invoice"), 1, patience)
			if err == nil && runs[0].First <= last {
				t.Fatalf("%d after %d", runs[0].First, last)
			}
			if err == nil {
				last = runs[0].First
			}
			return err == nil
		})
		if i == 30 {
			c.StopWorker(1)
			c.StartWorker(1)
		}
	}
	tags, err := c.Client.ListTags(patient(t), subjects.TagList{})
	if err != nil || len(tags) != 1 || !tags[0].Strict {
		t.Errorf("%+v, %v, want a strict tag in the list", tags, err)
	}
}
