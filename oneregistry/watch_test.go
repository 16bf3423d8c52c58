package oneregistry

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// play runs a story in virtual time, and stops all workers at its end.
func play(t *testing.T, story func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		story(t, w)
		for _, s := range w.workers {
			if s.stop != nil {
				s.stop()
			}
		}
	})
}

// rest lets time pass, and returns when all workers wait for more of it: so a story may look at what is theirs.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) start(all ...*workerSim) {
	w.t.Helper()
	for _, s := range all {
		if err := s.start(); err != nil {
			w.t.Fatalf("%s: %v", s.name, err)
		}
	}
}

func serves(s *workerSim) bool { return s.why() == Refused{} }

// yields reports whether a worker serves nothing, and says why.
func yields(s *workerSim) bool {
	r := s.why()
	return r.Segments != nil && r.Snowflakes != nil && r.Tags != nil &&
		strings.Contains(r.Segments.Error(), "has yielded")
}

func hubAndLeaf(w *world) (hub, leaf *registrySim, h1, h2, l1 *workerSim) {
	now := time.Now()
	hub = newRegistry("HUB", now.Add(-time.Hour), map[string]int64{"order": 1000})
	leaf = newRegistry("LEAF", now, map[string]int64{"order": 50_000, "leafonly": 7})
	return hub, leaf, w.add("h1", "hub", hub), w.add("h2", "hub", hub), w.add("l1", "leaf", leaf)
}

func TestTwoRegistriesThatBecomeConnectedFindOutWithinTenSeconds(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		hub.marks["order"].high, leaf.marks["order"].high = 1, 1 // so that what is given twice is seen
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(time.Minute)
		if !serves(h1) || !serves(h2) || !serves(l1) {
			t.Fatal("separate deployments must not disturb each other")
		}
		w.link("hub", "leaf", true)
		rest(10 * time.Second)
		known := time.Now()
		if !yields(l1) || !serves(h1) || !serves(h2) {
			t.Fatalf("after 10 s: %v, %v, %v", h1.why(), h2.why(), l1.why())
		}
		rest(time.Minute)
		if w.last.After(known) {
			t.Errorf("an ID repeats %v later", w.last.Sub(known))
		}
		if o := hub.marks["order"]; o.high < leaf.marks["order"].high {
			t.Errorf("hub %d, leaf %d: not merged", o.high, leaf.marks["order"].high)
		}
		if hub.marks["leafonly"] == nil {
			t.Error("a tag of the registry that yielded is missing")
		}
	})
}

func TestAWorkerThatStartsBesideAnotherRegistryYieldsBeforeItServes(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		w.start(h1, h2)
		rest(20 * time.Second)
		before := leaf.marks["order"].high
		w.start(l1)
		if !yields(l1) {
			t.Errorf("it serves: %v", l1.why())
		}
		rest(20 * time.Second)
		if leaf.marks["order"].high != before {
			t.Error("it has loaded")
		}
		if len(l1.alarmed()) == 0 || !strings.Contains(strings.Join(l1.alarmed(), "\n"), "order [1, ") {
			t.Errorf("alarms: %q", l1.alarmed())
		}
	})
}

func TestWhoStays(t *testing.T) {
	old, young := time.Unix(1, 0), time.Unix(2, 0)
	for _, tc := range []struct {
		law  string
		a, b Notice // a stays
	}{
		{"pinned", Notice{ID: "b", Pinned: true, Workers: 1, Made: young}, Notice{ID: "a", Workers: 9, Made: old}},
		{"more workers", Notice{ID: "b", Workers: 2, Made: young}, Notice{ID: "a", Workers: 1, Made: old}},
		{"older", Notice{ID: "b", Workers: 2, Made: old}, Notice{ID: "a", Workers: 2, Made: young}},
		{"one whose age is known", Notice{ID: "b", Made: young}, Notice{ID: "a"}},
		{"else by name", Notice{ID: "a"}, Notice{ID: "b"}},
	} {
		if !tc.a.Outranks(tc.b) || tc.b.Outranks(tc.a) {
			t.Errorf("%s: both, or none, stays", tc.law)
		}
	}
}

func TestYieldingOutlastsALostLinkAndRestartsWithoutJetStream(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		l1.dir = t.TempDir()
		l2 := w.add("l2", "leaf", leaf)
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		w.link("hub", "leaf", false)
		rest(time.Minute)
		if !yields(l1) {
			t.Fatalf("the link is lost: %v", l1.why())
		}
		w.start(l2)
		if !yields(l2) {
			t.Errorf("a new worker of the registry: %v", l2.why())
		}
		l1.stop()
		leaf.mu.Lock()
		leaf.away = true
		leaf.mu.Unlock()
		w.start(l1)
		if r := l1.why(); r.Snowflakes == nil || r.Segments == nil {
			t.Errorf("started again without JetStream: %v", r)
		}
		leaf.mu.Lock()
		leaf.away = false
		leaf.facts.Verdict = Verdict{} // wiped, with the same ID put back
		leaf.mu.Unlock()
		rest(10 * time.Second)
		if !yields(l1) || leaf.facts.Verdict.Yields == "" {
			t.Errorf("the registry forgot: %v", l1.why())
		}
	})
}

func TestAWipedRegistryIsNoSecondOne(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("OLD", time.Now(), map[string]int64{"order": 1})
		a, b, c := w.add("a", "hub", r), w.add("b", "hub", r), w.add("c", "hub", r)
		w.start(a, b, c)
		rest(20 * time.Second)
		r.mu.Lock()
		r.facts.Segments, r.facts.Numbers = "SNEW", "NNEW"
		r.mu.Unlock()
		rest(time.Minute)
		for _, s := range []*workerSim{a, b, c} {
			if !serves(s) || len(s.alarmed()) > 0 || s.watch.Second() || s.watch.Status().Own.ID != "SNEW" {
				t.Errorf("%s: %v, alarms %q, %+v", s.name, s.why(), s.alarmed(), s.watch.Status())
			}
		}
	})
}

func TestAListenerWhoNeverAnswersDoesNotStopTheStart(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("R", time.Now(), map[string]int64{"order": 1})
		deaf := w.add("deaf", "hub", r)
		deaf.deaf, deaf.joined = true, "bystander"
		a := w.add("a", "hub", r)
		begin := time.Now()
		w.start(a)
		if took := time.Since(begin); took > askTimeout || !serves(a) {
			t.Errorf("it serves after %v: %v", took, a.why())
		}
	})
}

func TestAWorkerDoesNotStartWhileOneOfAnotherLayoutAnswers(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("R", time.Now(), nil)
		a, b := w.add("a", "hub", r), w.add("b", "hub", r)
		b.layout = "41+6+6"
		w.start(a)
		if err := b.start(); !errors.Is(err, ErrOther) {
			t.Errorf("it starts: %v", err)
		}
		if serves(b) {
			t.Error("it serves")
		}
		if err := a.watch.MayMake(t.Context()); err != nil {
			t.Errorf("alone, it may not: %v", err)
		}
	})
}

func TestTheCostDoesNotGrowWithTheSquareOfTheFleet(t *testing.T) {
	fleet, span := 50, 10*time.Minute
	if testing.Short() {
		fleet = 15
	}
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("R", time.Now(), nil)
		for i := range fleet {
			w.start(w.add(fmt.Sprint(i), "hub", r))
		}
		rest(time.Minute)
		w.do(func() { w.sent = 0 })
		rest(span)
		if limit := int(span / announceAfter); w.sent > limit || w.sent < int(span/(announceAfter+announceSpread)) {
			t.Errorf("%d workers announce %d times in %v, want at most %d", fleet, w.sent, span, limit)
		}
	})
}

// A list of all workers at each start would make starting a fleet cost the square of it.
func TestOfWorkersThatStartOnlyThoseThatSpeakCountTheOthers(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("R", time.Now(), map[string]int64{"order": 1})
		w.start(w.add("a", "hub", r), w.add("b", "hub", r), w.add("c", "hub", r))
		rest(settledAfter + 100*time.Millisecond) // not each of them has spoken since
		asker, _ := w.workers[0].watch.mine()
		asker.Process = "another"
		for _, s := range w.workers {
			n, err := parseReply(s.watch.Answer(t.Context(), encode(call{Op: opState, From: asker})))
			if err != nil || !n.Notice.Settled {
				t.Errorf("who starts waits for others in vain: %+v, %v", n.Notice, err)
			}
		}
		r.do(func() { r.counted = 0 })
		w.do(func() { w.sent = 0 })
		for i := range 20 {
			w.start(w.add(fmt.Sprint(i), "hub", r))
		}
		rest(3 * time.Second)
		if r.counted > w.sent || w.sent > 10 || w.blind > 0 {
			t.Errorf("20 workers that start counted %d times, announced %d times, %d times without a count",
				r.counted, w.sent, w.blind)
		}
		other := w.add("other", "hub", newRegistry("O", time.Now(), map[string]int64{"order": 1}))
		w.start(other)
		rest(20 * time.Second)
		if !yields(other) {
			t.Errorf("the smaller one does not yield: %v", other.why())
		}
	})
}

// Questions come on goroutines of their own, also while a worker looks for its registry: the race detector judges this.
func TestQuestionsMayComeWhileAWorkerLooksForItsRegistry(t *testing.T) {
	r := newRegistry("R", time.Now(), nil)
	r.away = true
	s := newWorld(t).add("a", "hub", r)
	s.watch = New(Config{Home: s, Bus: busSim{s}, Instance: func() string { return "a" }, Refuse: func(Refused) {}})
	var both sync.WaitGroup
	both.Go(func() { s.watch.arrive(t.Context()) })
	both.Go(func() {
		time.Sleep(10 * time.Millisecond) // so that nothing but a lock puts the two in order
		r.do(func() { r.away = false })
		s.watch.Answer(t.Context(), encode(call{Op: opState, From: Notice{Process: "b"}}))
	})
	both.Wait()
	if own, _ := s.watch.mine(); own.ID != "SR" {
		t.Errorf("the registry is %q, want SR", own.ID)
	}
}

func TestAWatchLooksSeldomUntilAnotherRegistryIsHeard(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, _, h1, _, l1 := hubAndLeaf(w)
		w.link("hub", "leaf", false)
		w.start(h1, l1)
		rest(time.Minute)
		if h1.watch.pause() != restEvery {
			t.Errorf("it looks every %v, and hears of no other", h1.watch.pause())
		}
		w.link("hub", "leaf", true)
		for began := time.Now(); h1.watch.pause() != tickEvery; rest(10 * time.Millisecond) {
			if time.Since(began) > announceAfter+announceSpread {
				t.Fatalf("it looks every %v, beside another registry", h1.watch.pause())
			}
		}
	})
}

func TestMalformedAnnouncementsAreIgnored(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("R", time.Now(), map[string]int64{"order": 1})
		a := w.add("a", "hub", r)
		w.start(a)
		for _, text := range []string{
			"", "{", "[]", `{"registry":"X"}`, `{"registry":"X","segments":"Y","process":"p"}`,
			`{"registry":"a.b","segments":"a.b","process":"p"}`, `{"registry":"X","segments":"X"}`,
			`{"registry":"X","segments":"X","process":"p","workers":-1}`, strings.Repeat(" ", maxNotice+1),
		} {
			a.watch.Hear([]byte(text))
		}
		// Well formed, and of a registry that has no worker.
		a.watch.Hear([]byte(`{"registry":"X","segments":"X","process":"p","workers":9}`))
		rest(30 * time.Second)
		if !serves(a) || a.watch.malformed != 9 || a.watch.Second() {
			t.Errorf("%v, %d malformed", a.why(), a.watch.malformed)
		}
	})
}

func TestARegistryThatCannotBeCalledIsReportedAndTheSmallerOneStops(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		_ = leaf
		w.start(h1)
		w.mute = true // calls do not pass
		w.start(h2, l1)
		rest(time.Minute)
		if r := l1.why(); r.Segments == nil || r.Snowflakes == nil {
			t.Errorf("the smaller one serves: %v", r)
		}
		if !serves(h1) || len(h1.alarmed()) == 0 || len(l1.alarmed()) == 0 {
			t.Errorf("%v, alarms %q and %q", h1.why(), h1.alarmed(), l1.alarmed())
		}
	})
}

// The leaf is ahead, so what the hub would issue before the merge, or out of memory after it, the leaf has given.
func TestBothStopAtOnceWhoeverIsAhead(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		hub, leaf, h1, h2, l1 := hubAndLeaf(w)
		hub.marks["order"].high, leaf.marks["order"].high = 1, 1
		w.link("hub", "leaf", false)
		w.start(l1)
		rest(10 * time.Minute)
		w.start(h1, h2)
		rest(20050 * time.Millisecond)
		w.link("hub", "leaf", true)
		for !yields(l1) {
			rest(time.Millisecond)
		}
		stopped := time.Now()
		rest(20 * time.Second)
		if !serves(h1) || !serves(h2) {
			t.Fatalf("%v, %v", h1.why(), h2.why())
		}
		if late := w.last.Sub(stopped); late > 0 {
			t.Errorf("an ID repeats %v after one of them has stopped", late)
		}
	})
}

func TestTheOneThatYieldsStopsThoughItsVerdictCannotBeWritten(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		leaf.mute = true
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		if r := l1.why(); r.Segments == nil || r.Snowflakes == nil {
			t.Errorf("it serves: %v", r)
		}
		if r := h1.why(); r.Segments == nil || r.Snowflakes != nil {
			t.Errorf("the one that stays issues segments before the marks are merged: %v", r)
		}
		leaf.do(func() { leaf.mute = false })
		rest(20 * time.Second)
		if !yields(l1) || !serves(h1) {
			t.Errorf("%v, %v", h1.why(), l1.why())
		}
	})
}

func TestWhatWasNotReadAfreshIsNoProof(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		leaf.mu.Lock()
		leaf.away = true
		leaf.mu.Unlock()
		rest(10 * time.Second)
		w.link("hub", "leaf", true)
		rest(20 * time.Second)
		if !serves(h1) || len(h1.alarmed()) > 0 {
			t.Errorf("%v, %q", h1.why(), h1.alarmed())
		}
	})
}

// What it has in memory, and its window of ticks, the other registry may give as well.
func TestAWorkerWhoseRegistryCannotBeReadStopsBesideAnother(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		_, leaf, h1, h2, l1 := hubAndLeaf(w)
		w.link("hub", "leaf", false)
		w.start(h1, h2, l1)
		rest(20 * time.Second)
		leaf.do(func() { leaf.away = true })
		w.link("hub", "leaf", true)
		rest(14 * time.Second)
		if r := l1.why(); r.Segments == nil || r.Snowflakes == nil || len(l1.alarmed()) != 1 {
			t.Errorf("it serves: %v, alarms %q", r, l1.alarmed())
		}
		if !serves(h1) || !serves(h2) {
			t.Errorf("the others wait for it: %v, %v", h1.why(), h2.why())
		}
		leaf.do(func() { leaf.away = false })
		rest(20 * time.Second)
		if !yields(l1) || !serves(h1) {
			t.Errorf("%v, %v", h1.why(), l1.why())
		}
	})
}

func TestAWorkerWhoseRegistryWasWipedStillSaysWhatItRestedOn(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		r := newRegistry("OLD", time.Now(), nil)
		a, b := w.add("a", "hub", r), w.add("b", "hub", r)
		b.layout = "41+6+6"
		w.start(a)
		r.mu.Lock()
		r.facts.Segments, r.facts.Numbers = "", ""
		r.mu.Unlock()
		rest(20 * time.Second)
		if err := b.start(); !errors.Is(err, ErrOther) {
			t.Errorf("one of another layout starts: %v", err)
		}
		if b.watch.MayFound(t.Context()) == nil || b.watch.MayMake(t.Context()) == nil {
			t.Error("one of another layout may make a registry")
		}
	})
}
