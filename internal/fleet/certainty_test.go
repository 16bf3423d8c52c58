package fleet

import (
	"log/slog"
	"testing"
	"time"
)

// ordered returns settings that were read at a time, on a connection's first life, and the doubts that they have.
func ordered(at time.Time) (s *Settings, doubts *int) {
	doubts = new(int)
	return &Settings{
		cfg: Config{
			SetStrict: func(map[string]bool) {}, Doubt: func() { *doubts++ }, Log: slog.New(slog.DiscardHandler),
		},
		wake:    make(chan struct{}, 1),
		certain: certainty{until: at},
	}, doubts
}

func TestAWorkerThatIsCutOffServesMemoryForHalfAnHour(t *testing.T) {
	at := time.Now()
	s, doubts := ordered(at)
	for range 7200 { // it stays connected
		at = at.Add(lookEvery)
		s.lookAt(at, true, 0)
	}
	if *doubts > 0 || s.isStale.Load() {
		t.Fatal("a worker that is connected doubts")
	}
	for range int(certainFor/lookEvery) - 1 {
		at = at.Add(lookEvery)
		s.lookAt(at, false, 0)
	}
	if *doubts > 0 || !s.isStale.Swap(false) {
		t.Fatalf("%d doubts after less than %v; it reads again: %t", *doubts, certainFor, s.isStale.Load())
	}
	s.lookAt(at, true, 1)
	if *doubts > 0 || !s.isStale.Load() {
		t.Fatalf("%d doubts as it reconnects; it reads again: %t", *doubts, s.isStale.Load())
	}
	for range 2 {
		at = at.Add(lookEvery)
		s.lookAt(at, true, 1)
	}
	if *doubts != 1 || !s.inDoubt() {
		t.Fatalf("%d doubts after %v, want one", *doubts, certainFor)
	}
	s.honour(certainty{until: at, reconnects: 1, doubts: 0}) // read before the doubt
	if !s.inDoubt() {
		t.Error("what was read before a doubt ends it")
	}
	s.honour(certainty{until: at, reconnects: 1, doubts: 1})
	s.lookAt(at.Add(lookEvery), true, 1)
	if s.inDoubt() || *doubts != 1 {
		t.Error("what was read afterwards does not end the doubt")
	}
}

func TestAWorkerThatMayHaveMissedAChangeReadsAgain(t *testing.T) {
	at := time.Now()
	for name, look := range map[string]func(s *Settings){
		"it stood still":               func(s *Settings) { s.lookAt(at.Add(cutOff), true, 0) },
		"it reconnected between looks": func(s *Settings) { s.lookAt(at.Add(lookEvery), true, 1) },
		"it is disconnected":           func(s *Settings) { s.lookAt(at.Add(lookEvery), false, 0) },
	} {
		s, doubts := ordered(at)
		if look(s); *doubts > 0 || !s.isStale.Load() {
			t.Errorf("%s: %d doubts; it reads again: %t", name, *doubts, s.isStale.Load())
		}
		s.isStale.Store(false)
		if look(s); s.isStale.Load() {
			t.Errorf("%s: each look makes it read again", name)
		}
	}
}
