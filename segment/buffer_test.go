package segment

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// hanging is a store whose loads never end.
type hanging struct{ Store }

func (hanging) Load(ctx context.Context, _ string, _, _ int64) (Loaded, error) {
	<-ctx.Done()
	return Loaded{}, ctx.Err()
}

// holding returns a buffer that holds the ranges, whose loads hang.
func holding(t *testing.T, ranges ...Range) *buffer {
	a := New(Config{Store: hanging{}, Deadline: time.Second})
	t.Cleanup(a.Close)
	b := newBuffer(a.tags, "a")
	for _, r := range ranges {
		b.supply.stock.add(r, 0)
	}
	b.look()
	return b
}

func TestRequestsLeaveTheLockAloneWhileALoadIsUnderWay(t *testing.T) {
	b := holding(t, Range{1, 1001})
	if _, err := b.next(100, nil); err != nil { // a tenth
		t.Fatal(err)
	}
	b.mu.Lock() // a request that looked would hang
	defer b.mu.Unlock()
	if !b.supply.loader.running {
		t.Fatal("no load is under way")
	}
	for range 16 {
		if _, err := b.next(1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheTakerOfTheLastIDMovesOnToTheNextRange(t *testing.T) {
	b := holding(t, Range{1, 11}, Range{101, 111})
	for range 10 {
		if _, err := b.next(1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if r, last := b.supply.stock.run.Load(), b.supply.pace.last; r == nil || r.end != 111 || last.ids != 10 {
		t.Errorf("the open run is %+v, the last range %+v: the time of the last range would continue", r, last)
	}
}

func TestABufferThatIsGoneNeverOpensAgain(t *testing.T) {
	b := holding(t, Range{1, 11})
	p := b.plan()
	b.stop(ErrDisabled, certain)
	b.takeIn(p, Loaded{Range: Range{11, 21}, Step: 10}, nil) // of the load that was under way
	b.look()
	if r, err := b.next(1, nil); err == nil {
		t.Errorf("a deleted tag issues %v", r)
	}
}

func TestTagsFoundWhileNoListingSucceedsDoNotFillTheMemory(t *testing.T) {
	n := newNames()
	n.list(nil, 1)
	for i := range 2 * maxFresh {
		n.found(strconv.Itoa(i), 2)
	}
	if got := len(n.fresh); got != maxFresh {
		t.Errorf("%d are remembered, want %d", got, maxFresh)
	}
	if unlisted, err := n.admit(strconv.Itoa(2*maxFresh-1), time.Second, time.Minute, false); !unlisted || err != nil {
		t.Errorf("one that is not remembered: unlisted %v, %v, want a lookup", unlisted, err)
	}
}

func TestAnAllocatorWithoutADeadlineIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("every parked request would expire at once")
		}
	}()
	New(Config{Store: hanging{}})
}
