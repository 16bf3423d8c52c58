package fleet

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// ordered returns the order of tags that were read at a time, on a connection's first life, and the doubts about it.
func ordered(at time.Time) (o *ordering, doubts *int) {
	doubts = new(int)
	return &ordering{
		cfg: &Config{
			SetStrict: func(map[string]bool) {}, Doubt: func() { *doubts++ }, Log: slog.New(slog.DiscardHandler),
		},
		isStale: new(atomic.Bool), wake: make(chan struct{}, 1),
		certain: certainty{until: at},
	}, doubts
}

func TestAWorkerThatIsCutOffServesMemoryForHalfAnHour(t *testing.T) {
	at := time.Now()
	o, doubts := ordered(at)
	for range 7200 { // it stays connected
		at = at.Add(lookEvery)
		o.lookAt(at, true, 0)
	}
	if *doubts > 0 || o.isStale.Load() {
		t.Fatal("a worker that is connected doubts")
	}
	for range int(certainFor/lookEvery) - 1 {
		at = at.Add(lookEvery)
		o.lookAt(at, false, 0)
	}
	if *doubts > 0 || !o.isStale.Swap(false) {
		t.Fatalf("%d doubts after less than %v; it reads again: %t", *doubts, certainFor, o.isStale.Load())
	}
	o.lookAt(at, true, 1)
	if *doubts > 0 || !o.isStale.Load() {
		t.Fatalf("%d doubts as it reconnects; it reads again: %t", *doubts, o.isStale.Load())
	}
	for range 2 {
		at = at.Add(lookEvery)
		o.lookAt(at, true, 1)
	}
	if *doubts != 1 || !o.inDoubt() {
		t.Fatalf("%d doubts after %v, want one", *doubts, certainFor)
	}
	o.honour(certainty{until: at, reconnects: 1, doubts: 0}, new(entries)) // read before the doubt
	if !o.inDoubt() {
		t.Error("what was read before a doubt ends it")
	}
	o.honour(certainty{until: at, reconnects: 1, doubts: 1}, new(entries))
	o.lookAt(at.Add(lookEvery), true, 1)
	if o.inDoubt() || *doubts != 1 {
		t.Error("what was read afterwards does not end the doubt")
	}
}

func TestAWorkerThatMayHaveMissedAChangeReadsAgain(t *testing.T) {
	at := time.Now()
	for name, look := range map[string]func(o *ordering){
		"it stood still":               func(o *ordering) { o.lookAt(at.Add(cutOff), true, 0) },
		"it reconnected between looks": func(o *ordering) { o.lookAt(at.Add(lookEvery), true, 1) },
		"it is disconnected":           func(o *ordering) { o.lookAt(at.Add(lookEvery), false, 0) },
	} {
		o, doubts := ordered(at)
		if look(o); *doubts > 0 || !o.isStale.Load() {
			t.Errorf("%s: %d doubts; it reads again: %t", name, *doubts, o.isStale.Load())
		}
		o.isStale.Store(false)
		if look(o); o.isStale.Load() {
			t.Errorf("%s: each look makes it read again", name)
		}
	}
}
