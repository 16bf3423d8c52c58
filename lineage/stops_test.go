package lineage

import (
	"context"
	"errors"
	"testing"
	"time"
)

// sound lets workers check until each finds the registry sound.
func (w *world) sound(t *testing.T, workers ...*proc) {
	t.Helper()
	for _, p := range workers {
		var err error
		for range 10 {
			w.now += time.Second
			if err = p.check(context.Background(), true); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
}

// resumed lets workers stop, and an operator resume.
func (w *world) resumed(t *testing.T, workers ...*proc) {
	t.Helper()
	for _, p := range workers {
		for range 3 {
			w.now += time.Second
			_ = p.check(context.Background(), true)
		}
	}
	o := w.newOp(0)
	for o.step(context.Background()) {
		w.now += time.Second
	}
	if o.next != 5 {
		t.Fatalf("the resume ended at step %d", o.next)
	}
}

// The chain of a restored registry lacks the eras since the backup. Who returns from one of them, of which a prover
// knew, opens no incident.
func TestOneStopForEachRestore(t *testing.T) {
	w := newWorld(1, options{noFaults: true}, nil)
	w.quiet, w.depth = true, 3 // one acts at a time
	a, b, c := w.procs[0], w.procs[1], w.procs[2]
	w.sound(t, a, b, c)
	backup := w.save()
	w.sound(t, a, b, c)
	w.bring(*backup)
	w.resumed(t, a, b)
	w.sound(t, a, b)
	b.die()
	w.bring(*backup)
	w.resumed(t, a)
	b.start()
	w.sound(t, a, b, c)
	if w.incidents != 2 || w.breach != nil {
		t.Errorf("%d stops for 2 restores, %v", w.incidents, w.breach)
	}
}

// Two workers that were stopped when the same backup was restored again prove one set-back.
func TestOneStopWhereSeveralProve(t *testing.T) {
	w := newWorld(1, options{noFaults: true}, nil)
	w.quiet, w.depth = true, 3
	a, b, c := w.procs[0], w.procs[1], w.procs[2]
	w.sound(t, a, b, c)
	backup := w.save()
	w.sound(t, a, b, c)
	w.bring(*backup)
	for range 3 {
		for _, p := range []*proc{a, b, c} {
			w.now += time.Second
			_ = p.check(context.Background(), true)
		}
	}
	w.bring(*backup)
	w.resumed(t, a, b, c)
	w.sound(t, a, b, c)
	if w.incidents != 2 || w.breach != nil {
		t.Errorf("%d stops for 2 restores, %v", w.incidents, w.breach)
	}
}

// A worker of an older version leaves alone what it does not know.
func TestAnIdentityOfANewerNatsidIsLeftAlone(t *testing.T) {
	w := newWorld(1, options{noFaults: true}, nil)
	w.quiet, w.depth = true, 3
	w.sound(t, w.procs[0])
	newer := []byte(`{"version":2,"registry":"R","kind":"kv"}`)
	w.bkt, _ = w.bkt.with(identityKey, newer, w.now)
	for _, p := range w.procs[:2] {
		if err := p.member.checkOnce(context.Background(), true); !errors.Is(err, ErrNewer) {
			t.Errorf("%v, want ErrNewer", err)
		}
	}
	o := w.newOp(0)
	if _, err := o.o.Look(context.Background(), nil); !errors.Is(err, ErrNewer) {
		t.Errorf("the operator's command: %v, want ErrNewer", err)
	}
	if now := w.bkt.entries[identityKey].Value; string(now) != string(newer) {
		t.Errorf("the identity is %s now", now)
	}
}
