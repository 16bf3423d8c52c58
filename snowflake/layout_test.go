package snowflake

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestLeafLayoutIsLeafs(t *testing.T) {
	if err := Leaf.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := Leaf.String(); got != "41+10+12" {
		t.Errorf("split = %s", got)
	}
	// 2^41 ms after the epoch, as Leaf's documentation has it: 69 years.
	if got, want := Leaf.Ends(), time.Date(2080, 7, 10, 17, 30, 30, 209e6, time.UTC); !got.Equal(want) {
		t.Errorf("ends %v, want %v", got, want)
	}
	// Leaf: (timestamp - twepoch) << 22 | workerId << 12 | sequence.
	const ms, worker, sequence = 1700000000123, 1023, 4095
	id := int64((ms-1288834974657)<<22 | worker<<12 | sequence)
	got, err := Leaf.Decode(id)
	want := Parts{Time: time.UnixMilli(ms).UTC(), Tick: ms - LeafEpoch, Worker: worker, Sequence: sequence}
	if err != nil || got != want {
		t.Errorf("Decode(%d) = %+v, %v, want %+v", id, got, err, want)
	}
}

func TestLayoutsThatCannotBeAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Layout){
		"at least one bit": func(l *Layout) { l.Sequence = 0 },
		"at most 63":       func(l *Layout) { l.Business = 1 },
		"worker bits":      func(l *Layout) { l.Time, l.Worker = 20, 21 },
		"a tick of 0":      func(l *Layout) { l.Unit = 0 },
		"a tick of 60001":  func(l *Layout) { l.Unit = 60_001 },
		"epoch -1":         func(l *Layout) { l.Epoch = -1 },
		"outlasts":         func(l *Layout) { l.Time, l.Worker, l.Sequence, l.Unit = 60, 1, 1, 1000 },
		"year 3000":        func(l *Layout) { l.Epoch = math.MaxInt64 },
	} {
		l := Leaf
		spoil(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: error %v, want one with %q", l, err, name)
		}
	}
}

func TestDecodeRefusesWhatIsNoID(t *testing.T) {
	short := Layout{Time: 20, Worker: 4, Sequence: 4, Unit: 1}
	for _, id := range []int64{-1, math.MinInt64, 1 << 28, math.MaxInt64} {
		if p, err := short.Decode(id); err == nil {
			t.Errorf("Decode(%d) = %+v", id, p)
		}
	}
}

func FuzzDecode(f *testing.F) {
	l := Layout{Time: 39, Worker: 9, Business: 4, Sequence: 7, Epoch: 1537545600000, Unit: 10}
	f.Add(int64(0), uint16(0), uint8(0), uint8(0))
	f.Add(int64(1<<39-1), uint16(511), uint8(15), uint8(127))
	f.Fuzz(func(t *testing.T, tick int64, worker uint16, business, sequence uint8) {
		tick &= l.maxTick()
		worker &= 511
		business &= 15
		sequence &= 127
		got, err := l.Decode(l.id(tick, int64(worker), int64(business), int64(sequence)))
		want := Parts{Time: time.UnixMilli(l.FirstMs(tick)).UTC(), Tick: tick, Worker: int(worker), Business: int64(business), Sequence: int64(sequence)}
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

func TestTicksOfMilliseconds(t *testing.T) {
	l := Layout{Time: 30, Worker: 5, Sequence: 5, Epoch: 1000, Unit: 10}
	for _, c := range []struct{ ms, at, from int64 }{
		{1000, 0, 0}, {1001, 0, 1}, {1009, 0, 1}, {1010, 1, 1}, {999, -1, 0}, {990, -1, -1}, {989, -2, -1},
	} {
		if at, from := l.TickAt(c.ms), l.TickFrom(c.ms); at != c.at || from != c.from {
			t.Errorf("ms %d: in tick %d, first from it %d; want %d, %d", c.ms, at, from, c.at, c.from)
		}
	}
}
