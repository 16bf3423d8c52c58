package oneregistry

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestAPinnedRegistryStaysAndAWorkerOnAnotherServesNothing(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, _, h1, h2, l1 := hubAndLeaf(w)
		l1.pin = "SLEAF"
		w.start(h1, h2)
		rest(20 * time.Second)
		w.start(l1)
		rest(15 * time.Second)
		if !serves(l1) || !yields(h1) || !yields(h2) {
			t.Errorf("%v, %v, %v", h1.why(), h2.why(), l1.why())
		}
		l1.stop()
		l1.pin = "SOTHER"
		w.start(l1)
		rest(15 * time.Second)
		if r := l1.why(); r.Segments == nil || !strings.Contains(r.Segments.Error(), "--registry") {
			t.Errorf("a worker on another registry than --registry: %v", r)
		}
	})
}

func TestAnOperatorAdoptsTheOtherRegistryAndReleasesOne(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		hub.marks["order"].high, leaf.marks["order"].high = 1, 1
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(20150 * time.Millisecond) // the leaf's worker is in the middle of a range
		w.link("hub", "leaf", true)
		rest(20 * time.Second)
		if !yields(l1) {
			t.Fatal(l1.why())
		}
		merged := time.Now()
		operator := busSim{w.add("operator", "hub", hub)}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := Release(ctx, operator); err == nil {
			t.Error("released beside the other one")
		}
		if err := Adopt(ctx, operator, "SLEAF", false); err != nil {
			t.Fatal(err)
		}
		rest(10 * time.Second)
		if !serves(l1) || !yields(h1) || !yields(h2) || w.last.After(merged) {
			t.Errorf("%v, %v, %v, %d repeats", h1.why(), h2.why(), l1.why(), w.repeats)
		}
		if leaf.high("order") <= hub.high("order") {
			t.Error("not merged")
		}
		w.link("hub", "leaf", false)
		rest(time.Minute)
		if got, err := Release(ctx, operator); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
		rest(10 * time.Second)
		if !serves(h1) || !serves(h2) {
			t.Errorf("released: %v, %v", h1.why(), h2.why())
		}
	})
}

func TestARegistryThatIsGoneIsAdoptedOnlyByForce(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		_ = hub
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		h1.stop()
		h2.stop()
		operator := busSim{w.add("operator", "leaf", leaf)}
		err := Adopt(t.Context(), operator, "SLEAF", false)
		if err == nil || !strings.Contains(err.Error(), "tag raise --all") {
			t.Errorf("adopted without what the other has issued: %v", err)
		}
		if err := Adopt(t.Context(), operator, "SLEAF", true); err != nil {
			t.Error(err)
		}
		rest(5 * time.Second)
		if !serves(l1) {
			t.Error(l1.why())
		}
	})
}

func TestTwoDecisionsAtOneMomentEndInOneRegistry(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		hub.facts.Verdict = Verdict{Yields: "SLEAF", Revision: 1}
		leaf.facts.Verdict = Verdict{Yields: "SHUB", Revision: 1}
		hub.writes, leaf.writes = 1, 1
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		if !serves(h1) || !serves(h2) || !yields(l1) || w.repeats > 0 {
			t.Errorf("%v, %v, %v", h1.why(), h2.why(), l1.why())
		}
	})
}
