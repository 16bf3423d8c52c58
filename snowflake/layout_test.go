package snowflake

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/subjects"
)

func TestLeafLayoutIsLeafs(t *testing.T) {
	// Leaf: (timestamp - twepoch) << 22 | workerId << 12 | sequence.
	const ms, worker, sequence = 1700000000123, 1023, 4095
	id := subjects.ID((ms-1288834974657)<<22 | worker<<12 | sequence)
	got, err := Leaf.Decode(id)
	want := Parts{
		Time: time.UnixMilli(ms).UTC(), Tick: ms - LeafEpoch, Worker: worker, Machine: worker, Sequence: sequence,
	}
	if err != nil || got != want {
		t.Errorf("Decode(%d) = %+v, %v, want %+v", id, got, err, want)
	}
}

func TestLayoutsThatCannotBeAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Layout){
		"at least one bit": func(l *Layout) { l.Sequence = 0 },
		"at most 63":       func(l *Layout) { l.Business = 1 },
		"32 bits for site": func(l *Layout) { l.Time, l.Site, l.Worker = 10, 1, 31 },
		"time, machine":    func(l *Layout) { l.Site = -1 },
		"want at most 63":  func(l *Layout) { l.Time, l.Business = math.MaxInt, math.MaxInt },
		"a tick of 0":      func(l *Layout) { l.Unit = 0 },
		"a tick of 60001":  func(l *Layout) { l.Unit = 60_001 },
		"epoch -1":         func(l *Layout) { l.Epoch = -1 },
		"outlast":          func(l *Layout) { l.Time, l.Worker, l.Sequence, l.Unit = 60, 1, 1, 1000 },
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
	for _, id := range []subjects.ID{-1, math.MinInt64, 1 << 28, math.MaxInt64} {
		if p, err := short.Decode(id); err == nil {
			t.Errorf("Decode(%d) = %+v", id, p)
		}
	}
}

// presetsWithEnds are the presets as the documentation has them.
var presetsWithEnds = []struct {
	name, split string
	layout      Layout
	ends        time.Time
}{
	{"leaf", "41+10+12", Leaf, time.Date(2080, 7, 10, 17, 30, 30, 209e6, time.UTC)},
	{"js53", "41+6+6", JS53, time.Date(2080, 7, 10, 17, 30, 30, 209e6, time.UTC)},
	{"article", "39+2+7+4+7", Article, time.Date(2036, 2, 22, 13, 56, 53, 888e6, time.UTC)},
}

func TestPresets(t *testing.T) {
	for _, p := range presetsWithEnds {
		l, err := ParseLayout(p.name)
		if err != nil || l != p.layout || l.String() != p.split || l.Validate() != nil || !l.Ends().Equal(p.ends) {
			t.Errorf("%s: %+v, %v, ends %v", p.name, l, err, l.Ends())
		}
	}
	if begins := time.Date(2018, 9, 22, 0, 0, 0, 0, time.FixedZone("", 8*3600)); Article.Epoch != begins.UnixMilli() {
		t.Errorf("the article's epoch is %d, want %d", Article.Epoch, begins.UnixMilli())
	}
}

// generatorAt returns a generator of the highest worker number that may issue at any time.
func generatorAt(t *testing.T, l Layout) *Generator {
	t.Helper()
	g, err := NewGenerator(l, l.Workers()-1, l.Epoch, math.MaxInt64, 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestEveryIDOfJS53IsSafeInJavaScript(t *testing.T) {
	const safe = 1<<53 - 1 // Number.MAX_SAFE_INTEGER
	if last := JS53.id(JS53.maxTick(), int64(JS53.Workers()-1), JS53.MaxBusiness(), JS53.PerTick()-1); last != safe {
		t.Errorf("the largest ID is %d, want %d", last, safe)
	}
}

func TestSitesNumberTheirOwnMachines(t *testing.T) {
	for _, l := range []Layout{Article, Leaf, {Time: 31, Site: 1, Worker: 1, Sequence: 1, Unit: 1000}} {
		owner := map[int]int{}
		for site := range l.Sites() {
			first, count := l.Numbers(site)
			for w := first; w < first+count; w++ {
				if other, taken := owner[w]; taken {
					t.Errorf("%s: number %d is of sites %d and %d", l, w, other, site)
				}
				owner[w] = site
				p, err := l.Decode(l.id(1, int64(w), l.MaxBusiness(), 1))
				if err != nil || p.Worker != w || p.Site != site || p.Machine != w-first {
					t.Errorf("%s: number %d of site %d decodes to %+v, %v", l, w, site, p, err)
				}
			}
		}
		if len(owner) != l.Workers() || owner[l.Workers()-1] != l.Sites()-1 {
			t.Errorf("%s: the sites have %d numbers, want 0..%d", l, len(owner), l.Workers()-1)
		}
	}
}

// firstID returns the first ID of a batch, -1 if it is empty.
func firstID(r Runs) subjects.ID {
	for first := range r.All() {
		return first
	}
	return -1
}

// eachSplit calls f with splits of all widths of time and sequence, each with few and with many bits of the others.
func eachSplit(f func(Layout)) {
	for tm := 1; tm < 62; tm++ {
		for seq := 1; tm+seq < 63; seq++ {
			left := 63 - tm - seq
			for _, l := range []Layout{
				{Worker: 1}, {Worker: min(left, 31)},
				{Worker: 1, Site: min(left-1, 30)}, {Worker: 1, Business: left - 1},
				{Worker: min(15, (left+2)/3), Site: min(16, left/3), Business: left / 3},
			} {
				l.Time, l.Sequence = tm, seq
				for _, l.Unit = range []int64{1, 10, 1000, 60_000} {
					for _, l.Epoch = range []int64{0, LeafEpoch, maxEpoch} {
						f(l)
					}
				}
			}
		}
	}
}

func TestNoSplitOverflows(t *testing.T) {
	n := 0
	eachSplit(func(l Layout) {
		if err := l.Validate(); err != nil {
			if l.Time+16 < 62 || !strings.Contains(err.Error(), "outlast") {
				t.Fatal(err)
			}
			return
		}
		n++
		end := l.Ends().UnixMilli()
		if end <= l.Epoch || (end-l.Epoch)/l.Unit != 1<<l.Time {
			t.Fatalf("%+v ends %d ms after its epoch", l, end-l.Epoch)
		}
		g := generatorAt(t, l)
		runs, err := g.NextAt(end-1, 1)
		if err != nil {
			t.Fatalf("%+v: in its last ms: %v", l, err)
		}
		p, err := l.Decode(firstID(runs.Of(l.MaxBusiness())))
		if err != nil || p.Tick != 1<<l.Time-1 || p.Worker != l.Workers()-1 || p.Business != l.MaxBusiness() {
			t.Fatalf("%+v: the last tick decodes to %+v, %v", l, p, err)
		}
		for _, late := range []int64{end, end + 1, end + 1<<40, math.MaxInt64 / 2, math.MaxInt64} {
			if late < end {
				continue
			}
			for _, n := range []int{1, 1_000_000} {
				if runs, err := g.NextAt(late, n); !errors.Is(err, ErrTimeEnds) {
					t.Fatalf("%+v: %d ms after its end: ID %d, %v", l, late-end, firstID(runs), err)
				}
			}
		}
		if _, err := g.NextAt(l.Epoch-1, 1); !errors.Is(err, ErrEpoch) {
			t.Fatalf("%+v: before its epoch: %v", l, err)
		}
		var behind *BehindError
		if _, err := g.NextAt(l.Epoch, 1); errors.As(err, &behind) && behind.By <= 0 || err == nil && l.Time > 1 {
			t.Fatalf("%+v: back to its epoch: %v", l, err)
		}
		for _, d := range []time.Duration{0, 750 * time.Millisecond, math.MaxInt64} {
			if y := l.Yield(d); y < l.PerTick() {
				t.Fatalf("%+v yields %d in %v", l, y, d)
			}
		}
		late, err := NewGenerator(l, 0, math.MaxInt64, math.MaxInt64, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.NextAt(end-1, 1); err == nil {
			t.Fatalf("%+v issues before its window", l)
		}
	})
	if n < 100_000 {
		t.Errorf("%d layouts seen", n)
	}
}

func TestYield(t *testing.T) {
	coarse := Layout{Time: 31, Worker: 10, Sequence: 4, Unit: 1000}
	for _, c := range []struct {
		l    Layout
		d    time.Duration
		want int64
	}{
		{Leaf, 750 * time.Millisecond, 3_072_000},
		{coarse, 3 * time.Second, 48},
		{coarse, 750 * time.Millisecond, 16}, // or no request could be served
		{Layout{Time: 2, Worker: 1, Sequence: 60, Unit: 1}, 7 * time.Millisecond, 7 << 60},
		{Layout{Time: 2, Worker: 1, Sequence: 60, Unit: 1}, 8 * time.Millisecond, math.MaxInt64},
	} {
		if got := c.l.Yield(c.d); got != c.want {
			t.Errorf("%s in %v: %d, want %d", c.l, c.d, got, c.want)
		}
	}
}

func TestTheEndIsAnnouncedFiveYearsBefore(t *testing.T) {
	for _, p := range presetsWithEnds {
		from := p.ends.AddDate(-5, 0, 0)
		for now, want := range map[time.Time]bool{
			from: false, from.Add(time.Millisecond): true, from.AddDate(-1, 0, 0): false,
			p.ends: true, p.ends.AddDate(100, 0, 0): true,
		} {
			if got := p.layout.EndsSoon(now); got != want {
				t.Errorf("%s: at %v: %v", p.name, now, got)
			}
		}
	}
	if (Layout{Time: 61, Worker: 1, Sequence: 1, Unit: 1}).EndsSoon(time.Now()) {
		t.Error("73 million years are not soon")
	}
}

func TestParseLayout(t *testing.T) {
	for s, want := range map[string]Layout{
		"41+10+12":        Leaf,
		"41+10+12@1ms":    Leaf,
		"41+0+10+0+12":    Leaf,
		"35+20+8@10ms":    {Time: 35, Worker: 20, Sequence: 8, Epoch: LeafEpoch, Unit: 10},
		"31+2+7+4+12@1s":  {Time: 31, Site: 2, Worker: 7, Business: 4, Sequence: 12, Epoch: LeafEpoch, Unit: 1000},
		"31+0+7+4+12@1m":  {Time: 31, Worker: 7, Business: 4, Sequence: 12, Epoch: LeafEpoch, Unit: 60_000},
		"1+1+1@1.5s":      {Time: 1, Worker: 1, Sequence: 1, Epoch: LeafEpoch, Unit: 1500},
		"61+1+1":          {Time: 61, Worker: 1, Sequence: 1, Epoch: LeafEpoch, Unit: 1},
		"1+30+1+30+1@1ms": {Time: 1, Site: 30, Worker: 1, Business: 30, Sequence: 1, Epoch: LeafEpoch, Unit: 1},
	} {
		if got, err := ParseLayout(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", s, got, err, want)
		}
		if again, err := ParseLayout(want.String()); err != nil || again != want {
			t.Errorf("%q is %s, which is %+v, %v", s, want, again, err)
		}
	}
	for s, word := range map[string]string{
		"": "want leaf", "Leaf": "want leaf", "41": "want leaf", "41+10": "want leaf", "39+9+4+7": "want leaf",
		"1+1+1+1+1+1": "want leaf", "41+10+": "want leaf", "41+ 10+12": "want leaf", "41+-1+12": "want leaf",
		"41+10+12@": "want leaf", "41+10+12@10": "want leaf",
		"41+10+12@1.5ms": "want leaf", "41+10+12@-": "want leaf", "leaf@10ms": "want leaf", "999+1+1": "want leaf",
		"41+10+13": "64 bits", "100+10+12": "122 bits", "41+0+12": "at least one bit", "0+10+12": "at least one bit",
		"41+10+12@0s": "a tick of 0 ms", "41+10+12@61s": "a tick of 61000 ms", "41+10+12@-1s": "a tick of -1000 ms",
		"20+32+1": "32 bits for site and machine",
	} {
		if got, err := ParseLayout(s); err == nil || got != (Layout{}) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %+v, %v, want an error with %q", s, got, err, word)
		}
	}
}

func FuzzParseLayout(f *testing.F) {
	for _, s := range []string{
		"leaf", "js53", "article", "41+10+12", "39+2+7+4+7@10ms", "31+7+12@1m0s", "39+0+9+4+7",
		"64+1+1", "1+1+1@-1s", "+++", "9@9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLayout(s)
		if err != nil {
			return
		}
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
		again, err := ParseLayout(l.String())
		if again.Epoch = l.Epoch; err != nil || again != l {
			t.Errorf("%q is %s, which is %+v, %v, want %+v", s, l, again, err, l)
		}
	})
}

// written returns the ID as the digits of its fields, in base 2, side by side.
func written(t *testing.T, l Layout, tick, site, machine, business, sequence int64) subjects.ID {
	var digits string
	for _, f := range []struct {
		bits  int
		value int64
	}{{l.Time, tick}, {l.Site, site}, {l.Worker, machine}, {l.Business, business}, {l.Sequence, sequence}} {
		if f.bits > 0 {
			digits += fmt.Sprintf("%0*b", f.bits, f.value)
		}
	}
	id, err := strconv.ParseInt(digits, 2, 64)
	if err != nil || len(digits) != l.Bits() {
		t.Fatalf("%+v: %s: %v", l, digits, err)
	}
	return subjects.ID(id)
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(41), uint8(0), uint8(10), uint8(0), uint8(12), uint16(1), int64(LeafEpoch), uint64(0), uint64(0))
	const all = uint64(math.MaxUint64)
	add := func(widths [5]uint8, unit uint16, epoch int64, tick, rest uint64) {
		f.Add(widths[0], widths[1], widths[2], widths[3], widths[4], unit, epoch, tick, rest)
	}
	add([5]uint8{39, 2, 7, 4, 7}, 10, 1537545600000, 1<<39-1, all)
	add([5]uint8{61, 0, 1, 0, 1}, 1, maxEpoch, all, all)
	add([5]uint8{1, 30, 1, 30, 1}, 60_000, 0, 1, 0x5555555555555555)
	f.Add(uint8(1), uint8(0), uint8(1), uint8(0), uint8(61), uint16(1000), int64(0), uint64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, time8, site8, machine8, business8, sequence8 uint8, unit uint16, epoch int64,
		tick, rest uint64) {
		l := Layout{
			Time: int(time8 % 64), Site: int(site8 % 64), Worker: int(machine8 % 64),
			Business: int(business8 % 64), Sequence: int(sequence8 % 64),
			Epoch: epoch, Unit: int64(unit),
		}
		if l.Validate() != nil {
			return
		}
		cut := func(v uint64, bits int) int64 { return int64(v & (1<<bits - 1)) }
		at, site, machine := cut(tick, l.Time), cut(rest, l.Site), cut(rest>>8, l.Worker)
		business, sequence := cut(rest>>16, l.Business), cut(rest>>3, l.Sequence)
		id := written(t, l, at, site, machine, business, sequence)
		worker := site<<l.Worker | machine
		if got := l.id(at, worker, business, sequence); got != id {
			t.Errorf("%+v: ID %d, want %d", l, got, id)
		}
		want := Parts{
			Time: time.UnixMilli(l.FirstMs(at)).UTC(), Tick: at,
			Worker: int(worker), Site: int(site), Machine: int(machine), Business: business, Sequence: sequence,
		}
		if got, err := l.Decode(id); err != nil || got != want {
			t.Errorf("%+v: %+v, %v, want %+v", l, got, err, want)
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

// The procedure of docs/operations.md for another layout rests on this.
func TestNewIDsAreAboveOldOnesForAsLongAsAnOldIDIsEarlierInTheNewLayout(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	of := func(below int, unit int64) Layout {
		l := Layout{Time: 63 - below, Worker: 1 + r.IntN(8), Business: r.IntN(3), Unit: unit}
		l.Time, l.Sequence, l.Epoch = min(l.Time, 41), below-l.Worker-l.Business, r.Int64N(1_600_000_000_000)
		return l
	}
	checked := 0
	for range 5000 {
		below, unit := 12+r.IntN(10), 1+r.Int64N(3000)
		old, next := of(below, unit), of(below+r.IntN(4), unit)
		if err := errors.Join(old.Validate(), next.Validate()); err != nil {
			t.Fatal(err)
		}
		const moment = 1_800_000_000_000
		id := func(l Layout, ms, rest int64) subjects.ID {
			return subjects.ID(l.TickAt(ms)<<(l.Bits()-l.Time) | rest)
		}
		parts, err := next.Decode(id(old, moment, r.Int64N(1<<below)))
		gap := moment - parts.Time.UnixMilli() - 2*unit // both times are of whole ticks
		if err != nil || gap <= 0 || gap > 1e12 {
			continue
		}
		checked++
		if highest := id(old, moment+gap-1, 1<<below-1); highest >= id(next, moment, 0) {
			t.Fatalf("ID %d of %+v, issued %d ms after the check, is not below all of %+v", highest, old, gap-1, next)
		}
	}
	if checked < 500 {
		t.Errorf("%d pairs of layouts were checked", checked)
	}
}
