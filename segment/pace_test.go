package segment

import (
	"context"
	"testing"
	"time"
)

func TestRangesThatOneRequestUsesUpCountAsOne(t *testing.T) {
	a := New(Config{})
	defer a.Close()
	b := newBuffer(a, "a")
	b.addLocked(Range{1, 1001}, 0)
	b.addLocked(Range{1001, 1011}, 0)
	b.takeLocked(1010, nil)
	b.paceLocked(time.Hour)
	// Each by itself: 10 IDs in no time, and the step would double for a batch
	// that comes once an hour.
	if want := (usage{1010, time.Hour}); b.last != want {
		t.Errorf("%+v, want %+v", b.last, want)
	}
}

// hanging is a store whose loads never end.
type hanging struct{ Store }

func (hanging) Load(ctx context.Context, _ string, _, _ int64) (Loaded, error) {
	<-ctx.Done()
	return Loaded{}, ctx.Err()
}

func TestRequestsLeaveTheLockAloneWhileALoadIsUnderWay(t *testing.T) {
	a := New(Config{Store: hanging{}})
	defer a.Close()
	b := newBuffer(a, "a")
	b.addLocked(Range{1, 1001}, 0)
	b.look()
	if _, err := b.next(100, nil); err != nil { // a tenth
		t.Fatal(err)
	}
	b.mu.Lock() // a request that looked would hang
	defer b.mu.Unlock()
	if !b.loading {
		t.Fatal("no load is under way")
	}
	for range 16 {
		if _, err := b.next(1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheTakerOfTheLastIDMovesOnToTheNextRange(t *testing.T) {
	a := New(Config{Store: hanging{}})
	defer a.Close()
	b := newBuffer(a, "a")
	b.addLocked(Range{1, 11}, 0)
	b.addLocked(Range{101, 111}, 0)
	b.look()
	for range 10 {
		if _, err := b.next(1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.open.Load(); r == nil || r.end != 111 || b.last.ids != 10 {
		t.Errorf("open is %+v, the last range %+v: its time would go on", r, b.last)
	}
}
