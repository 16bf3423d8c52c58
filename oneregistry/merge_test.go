package oneregistry

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMarksAreMergedBeforeTheRegistryThatStaysIssuesAgain(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		_ = leaf
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(30 * time.Second)
		w.link("hub", "leaf", true)
		rest(20 * time.Second)
		if w.repeats > 0 {
			t.Errorf("%d IDs repeat, though none did while they were apart", w.repeats)
		}
		if hub.marks["order"].high <= 50_000 || !serves(h1) {
			t.Errorf("the hub is at %d: %v", hub.marks["order"].high, h1.why())
		}
	})
}

func TestATagThatCannotBeRaisedStopsNoOther(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, _, h1, h2, l1 := hubAndLeaf(w)
		hub.damaged = "leafonly"
		w.start(h1, h2, l1)
		rest(30 * time.Second)
		if !serves(h1) || !yields(l1) || hub.marks["order"].high <= 50_000 {
			t.Errorf("%v, %v, %d", h1.why(), l1.why(), hub.marks["order"].high)
		}
		if all := strings.Join(l1.alarmed(), "\n"); !strings.Contains(all, "leafonly: it cannot be raised") {
			t.Errorf("alarms: %s", all)
		}
	})
}

func TestNothingIsMergedWhileTheOtherStoreIsAwayAndNothingIssuedAbove(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, _, h1, h2, l1 := hubAndLeaf(w)
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		w.link("hub", "leaf", true)
		for !strings.Contains(fmt.Sprint(l1.why().Segments), "has yielded") {
			rest(time.Millisecond)
		}
		hub.mu.Lock()
		hub.away = true
		hub.mu.Unlock()
		rest(8 * time.Second)
		if serves(h1) {
			t.Error("it issues segments before the marks are merged")
		}
		hub.mu.Lock()
		hub.away = false
		hub.mu.Unlock()
		rest(10 * time.Second)
		if !serves(h1) || !yields(l1) || w.repeats > 0 {
			t.Errorf("%v, %v, %d repeats", h1.why(), l1.why(), w.repeats)
		}
	})
}

func TestATagThatFailsForAWhileIsMergedInTheEnd(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, _, h1, h2, l1 := hubAndLeaf(w)
		hub.damaged = "leafonly"
		w.start(h1, h2, l1)
		rest(2 * time.Second)
		hub.mu.Lock()
		hub.damaged = ""
		hub.mu.Unlock()
		rest(20 * time.Second)
		if hub.marks["leafonly"] == nil || !serves(h1) {
			t.Errorf("%v, %v", hub.marks, h1.why())
		}
	})
}

func TestEachWorkerOfARegistryThatYieldedMergesWhatItKnows(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		l2 := w.add("l2", "cut off", leaf)
		w.link("hub", "cut off", false)
		w.link("leaf", "cut off", false)
		w.start(l2)
		rest(10 * time.Second)
		w.start(h1, h2, l1)
		rest(10 * time.Second)
		leaf.mu.Lock()
		merged := leaf.facts.Verdict.Merged
		leaf.marks["order"].high += 1_000_000 // by the worker that heard nothing
		high := leaf.marks["order"].high
		leaf.mu.Unlock()
		w.link("hub", "cut off", true)
		w.link("leaf", "cut off", true)
		rest(20 * time.Second)
		if !merged || !yields(l2) || hub.marks["order"].high < high {
			t.Errorf("merged %v, %v, hub %d, leaf %d", merged, l2.why(), hub.marks["order"].high, high)
		}
	})
}
