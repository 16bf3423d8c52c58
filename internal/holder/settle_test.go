package holder

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// A registry that lost its records gives the number of an owner that does not answer to another, and of two registries
// behind one subject both give it.
func TestNothingIsIssuedBeforeTheNumberIsAnsweredNorWhileTheRegistryIsStopped(t *testing.T) {
	h := &Holder{
		answered: -1, stopped: errNotAsked, layout: snowflake.Leaf, issuer: issuer.New(time.Second, 0, now),
	}
	h.keeper = workerid.New(workerid.Config{
		Registry: &workeridtest.Fake{Memory: new(workeridtest.Memory)}, Layout: snowflake.Leaf, Now: now,
		Use: func(*snowflake.Generator) {}, Alarm: func(workerid.Alarm, string) {},
	})
	generator := func(number int) *snowflake.Generator {
		g, err := snowflake.NewGenerator(snowflake.Leaf, number, now(), now()+3600_000, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	issues := func(what string, want bool) {
		t.Helper()
		_, err := h.Next(t.Context())
		if got := err == nil; got != want || !got && !errors.Is(err, snowflake.ErrNoNumber) {
			t.Errorf("%s: %v, want an ID: %t", what, err, want)
		}
	}
	issues("without a number", false)
	h.settle(func() { h.offered = generator(600) })
	issues("before anything is known", false)
	h.settle(func() { h.answered = 600 })
	issues("before the workers were asked", false)
	h.settle(func() { h.stopped = nil })
	issues("answered and allowed", true)
	h.settle(func() { h.offered = generator(601) })
	issues("while another number is answered", false)
	h.settle(func() { h.answered = 601 })
	issues("answered again", true)
	h.settle(func() { h.stopped = errors.New("stopped") })
	issues("after a stop", false)
	h.settle(func() { h.stopped = nil })
	issues("after the stop", true)
	h.settle(func() { h.offered = nil })
	issues("while the keeper offers none", false)
}

// A registry may have programs and no worker that runs when a link joins it with another one.
func TestWhichWorkersStopAHolder(t *testing.T) {
	own, stopped := lineage.Notice{Registry: "a", Numbers: "A"}, lineage.Notice{Registry: "a", Numbers: "A", Other: "b"}
	other, gone := lineage.Notice{Registry: "b", Numbers: "B"}, lineage.Notice{Registry: "b", Numbers: "B", Other: "a"}
	for _, c := range []struct {
		what  string
		all   []lineage.Notice
		stops bool
	}{
		{"its own", []lineage.Notice{own}, false},
		{"its own, stopped", []lineage.Notice{stopped}, true},
		{"both, its own stopped", []lineage.Notice{other, stopped}, true},
		{"both, the other one not noticed yet", []lineage.Notice{other, own}, false},
		{"the other one alone", []lineage.Notice{other}, true},
		{"the other one alone, stopped", []lineage.Notice{gone}, false},
	} {
		if err := verdict("A", c.all); (err != nil) != c.stops {
			t.Errorf("%s: %v, want a stop: %t", c.what, err, c.stops)
		}
	}
}
