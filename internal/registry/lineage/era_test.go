package lineage

import (
	"context"
	"errors"
	"testing"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// What is merely read may be what a deposed leader shows.
func TestEntriesAreReadByTheEraInWhichTheWorkerIs(t *testing.T) {
	w, a, _, _ := calm(1)
	w.sound(t, a)
	backup, old := w.save(), a.member.Identity()
	w.sound(t, a)
	w.bring(*backup)
	w.resumed(t, a)
	w.sound(t, a)
	a.member.last.Store(&old)
	l, err := a.store.Load(context.Background(), loose, 1, 0)
	if offset := a.member.Eras().Offset(); err != nil || l.Start != 1+offset || offset < ample {
		t.Errorf("it loads from %d, %v, in an era of offset %d", l.Start, err, offset)
	}
}

// Its floors are numbers of the present era, so they are above its offset already.
func TestMarksThatAreLostRaiseNoTagByAnOffsetTwice(t *testing.T) {
	w, a, _, _ := calm(1)
	w.tight = true
	for losses := range int64(12) {
		w.sound(t, a)
		if offset := a.member.Eras().Offset(); offset > losses*100 {
			t.Fatalf("after %d losses the offset is %d, want less than 100 for each", losses, offset)
		}
		l, err := a.store.Load(context.Background(), loose, 1, 0)
		if err != nil || l.Start < a.floor[loose].End {
			t.Fatalf("after %d losses it loads from %d, %v, below %d", losses, l.Start, err, a.floor[loose].End)
		}
		a.floor[loose] = segment.Floor{End: l.End, Step: 1, Live: true, Rules: new(l.Rules), Era: l.Era}
		w.wipe()
		w.resumed(t, a)
	}
}

// A tag that nobody remembers has a row. Others of columns as narrow as its own need not make room for it.
func TestMarksThatAreLostBesideATableRaiseNoTagByWhatAnotherOneIs(t *testing.T) {
	w := newWorld(1, options{noFaults: true, table: true}, nil)
	w.quiet, w.depth, w.tight = true, 3, true
	a := w.procs[0]
	w.rows[loose], w.rows["other"] = 1_900_000_000, 500
	w.sound(t, a)
	l, err := a.store.Load(context.Background(), loose, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.floor[loose] = segment.Floor{End: l.End, Step: 1, Live: true, Rules: new(l.Rules), Era: l.Era}
	w.wipe()
	w.resumed(t, a)
	w.sound(t, a)
	if offset := a.member.Eras().Offset(); offset > 100 {
		t.Errorf("the offset is %d", offset)
	}
	for tag, floor := range map[string]int64{loose: l.End, "other": 500} {
		l, err := a.store.Load(context.Background(), tag, 1, 0)
		if err != nil || l.Start < floor || l.Start > floor+100 {
			t.Errorf("tag %s: it loads from %d, %v", tag, l.Start, err)
		}
	}
}

// Nobody knew of the worker, so the bump was too low. Others would repeat what it has loaded until it loads again.
func TestAWorkerThatReturnsStopsAnEraThatBeganBelowItsFloors(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	backup := w.save()
	w.sound(t, b)
	l, err := a.store.Load(context.Background(), loose, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.floor[loose] = segment.Floor{End: l.End, Step: 1, Live: true, Rules: new(l.Rules), Era: l.Era}
	a.deaf = true
	w.bring(*backup)
	w.tight = true
	w.resumed(t, b)
	w.sound(t, b)
	a.deaf = false
	for range 3 {
		err = a.check(context.Background(), true)
	}
	if in := a.member.Identity().Incident; !errors.Is(err, ErrStopped) || in == nil || in.Need == 0 {
		t.Fatalf("it ends with %v, and the incident is %+v", err, in)
	}
	w.resumed(t, a, b)
	w.sound(t, a, b)
	if mark := w.effective(a.member.Identity(), loose); mark < l.End {
		t.Errorf("after the second resume the tag is at %d, and was loaded up to %d", mark, l.End)
	}
}

// A prover that was in the open incident before, or knows that it ended, opens another one.
func TestAnEraEndsAllThatProversKnew(t *testing.T) {
	id := era.Found("kv", at(0))
	first := id.Accuse(era.Incident{
		ID: "I1", Cause: era.WentBack, Eras: era.Offsets{"E1": 700}, Merged: []string{"R1"}, Need: 40,
	}, false)
	second := first.Accuse(era.Incident{
		ID: "I2", Cause: era.WentBack, Eras: era.Offsets{"E1": 3, "E2": 0}, Prior: []string{"I0"}, Need: 7,
	}, false)
	next, err := second.Resume(5, 0, at(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, incident := range []string{"I0", "I1", "I2"} {
		if next.Ended[incident] == "" {
			t.Errorf("incident %s has not ended", incident)
		}
	}
	if !next.Offsets.Has(era.Offsets{"E1": 700, "E2": 0}) || !next.IsOf("R1") || next.Offset() != 700+40+5 {
		t.Errorf("%+v", next)
	}
	if again, err := second.Resume(5, 0, at(0)); err != nil || again.Era == next.Era {
		t.Errorf("two resumes of one incident made era %s, %v", again.Era, err)
	}
	if _, err := next.Resume(era.MostOffset, 0, at(0)); err == nil {
		t.Error("an offset is above the highest")
	}
}
