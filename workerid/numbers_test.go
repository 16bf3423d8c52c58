package workerid

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// chooserOf returns a chooser that may take so many numbers of a layout with 64.
func chooserOf(first, last int) (*stub, *chooser) {
	s, of := newStub()
	of.layout.Worker, of.layout.Sequence = 6, 8
	s.deployment = DeploymentOf(of.layout)
	s.deployment.ID = "stub"
	h := newChooser(s, of)
	h.founder.deployment = s.deployment
	h.mine = Config{Layout: of.layout, Numbers: &Span{first, last}}.numbers()
	return s, h
}

func TestAllNumbersThatAWorkerMayTakeAreTakenAndNoOther(t *testing.T) {
	for _, span := range []Span{{0, 0}, {63, 63}, {5, 17}, {32, 63}, {0, 63}} {
		synctest.Test(t, func(t *testing.T) {
			s, h := chooserOf(span.First, span.Last)
			for range span.count() {
				c, err := h.acquireAny(t.Context(), reading{now: wallClock(), at: time.Now()}, view{records: s.records})
				if err != nil || !span.has(c.number) {
					t.Fatalf("%+v: %+v %v", span, c, err)
				}
			}
			_, err := h.acquireAny(t.Context(), reading{now: wallClock(), at: time.Now()}, view{records: s.records})
			if !errors.Is(err, ErrExhausted) || len(s.records) != span.count() {
				t.Errorf("%+v: %v after %d numbers", span, err, len(s.records))
			}
		})
	}
}

// A worker whose numbers were changed leaves the one that its state file remembers, with the registry and without.
func TestANumberThatAWorkerMayNotTakeIsNotResumed(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, mine := range []Span{{0, 0}, {0, 1}} { // it had number 1
			synctest.Test(t, func(t *testing.T) {
				s, of := newStub()
				of.file = newFile(t, t.TempDir())
				if err := of.file.settle(ofStub(), "me"); err != nil {
					t.Fatal(err)
				}
				opened(t, of) // and now it crashes
				of.process = "next"
				h := newChooser(s, of)
				h.mine = mine
				find := h.find
				if away {
					find = h.resumeAway
				}
				c, err := find(t.Context())
				switch {
				case mine.has(1):
					if err != nil || c.number != 1 {
						t.Errorf("away %t: %+v %v, want number 1 back", away, c, err)
					}
				case away:
					if err == nil {
						t.Errorf("it resumed number %d", c.number)
					}
				case err != nil || c.number != 0:
					t.Errorf("%+v %v, want number 0", c, err)
				}
			})
		}
	}
}

func TestNumbersMustBeThoseOfTheSite(t *testing.T) {
	sites := snowflake.Layout{Time: 41, Site: 1, Worker: 3, Sequence: 12, Epoch: 1, Unit: 1}
	for _, c := range []struct {
		of   Span
		l    snowflake.Layout
		site int
		ok   bool
	}{
		{Span{512, 1023}, snowflake.Leaf, 0, true}, {Span{0, 0}, snowflake.Leaf, 0, true},
		{Span{512, 1024}, snowflake.Leaf, 0, false}, {Span{-1, 5}, snowflake.Leaf, 0, false},
		{Span{5, 4}, snowflake.Leaf, 0, false},
		{Span{8, 15}, sites, 1, true}, {Span{7, 15}, sites, 1, false}, {Span{8, 15}, sites, 0, false},
	} {
		if err := c.of.Within(c.l, c.site); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
