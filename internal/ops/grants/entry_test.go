package grants

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := Batch{Head: Head{Instance: "w 1", Process: "P", Segments: "S", Numbers: "N", Store: "b", Entry: 7, Lost: 3}}
	for i := range 1000 {
		first := 1 + rng.Int64N(1<<62)
		l := Load{
			Tag: fmt.Sprintf("tag/%d=.x", i%7), First: first, Last: first + rng.Int64N(1<<40), Number: rng.IntN(4) - 1,
			Before: first - rng.Int64N(2), Read: 1 + rng.Uint64N(1<<59), Time: rng.Int64N(1 << 41),
			Replaced: rng.Int64N(1 << 41),
		}
		switch rng.IntN(8) {
		case 0:
			l.Read, l.Before, l.Replaced = 0, 0, 0 // the tag had no mark, or there are none
		case 1:
			l.Before = l.Last + 1 // a kept range that is granted later
		}
		if rng.IntN(4) > 0 {
			l.Written = l.Read + 1 + rng.Uint64N(1<<40)
		}
		b.Loads = append(b.Loads, l)
	}
	b.Writes = []Write{
		{"tag/1=.x", "raise", 5, 1 << 62, 7, 9, 80, 90, ""}, {"b", "create", 0, 1, 0, 3, 0, 50, ""},
		{"b", "load", 1, 9, 3, 0, 50, 50, ""},
	}
	b.Windows = []Window{{5, 100, 200, "acquired", 90}, {5, 100, 150, Closed, 140}}
	b.Discards = []Discard{{"tag/1=.x", 5, 9, 80}, {"b", 1, 1 << 62, 90}}
	want := slices.Clone(b.Loads)
	body, left := b.encode(1 << 20)
	if !left.isEmpty() {
		t.Fatalf("%+v do not fit", left)
	}
	slices.SortStableFunc(want, func(x, y Load) int { return slices.Compare([]byte(x.Tag), []byte(y.Tag)) })
	var got Batch
	if err := got.decode(body, make(map[string]string)); err != nil {
		t.Fatal(err)
	}
	if got.Head != b.Head || !reflect.DeepEqual(got.Windows, b.Windows) || !slices.Equal(got.Loads, want) ||
		!slices.Equal(got.Writes, b.Writes) || !slices.Equal(got.Discards, b.Discards) {
		t.Errorf("it was read as %+v", got.Head)
	}
}

func TestABusyTagCostsFewBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		between, bytes int64 // other writes of the bucket, or loads of another worker, between two loads
		others         bool
	}{
		"alone":               {0, 11, false},
		"beside a busy one":   {20, 12, false},
		"with another worker": {1, 18, true},
	} {
		b := Batch{Head: Head{Process: "P"}}
		for i := range int64(1800) {
			l := Load{
				Tag: "invoice", First: 1_000_000 + 64*i, Last: 1_000_063 + 64*i, Number: 3,
				Read: uint64(1e15 + i*(tc.between+1)), Time: 1e12 + i/2, Replaced: 1e12 + i/2 - 100,
			}
			if l.Written = l.Read + 1 + uint64(tc.between); tc.others {
				l.First, l.Last, l.Written = 1_000_000+128*i, 1_000_063+128*i, l.Read+1
			}
			l.Before = l.First
			b.Loads = append(b.Loads, l)
		}
		if body, _ := b.encode(1 << 20); int64(len(body)) > tc.bytes*1800 {
			t.Errorf("%s: %d bytes for 1800 loads, as %s", name, len(body), body[len(body)-40:])
		}
	}
}

func FuzzEntry(f *testing.F) {
	b := Batch{Head: Head{Process: "P"}, Windows: []Window{{5, 100, 200, "acquired", 90}},
		Loads: []Load{
			{Tag: "a", First: 1, Last: 9, Number: -1, Before: 1, Read: 5, Written: 6, Replaced: 3, Time: 7},
			{Tag: "a", First: 10, Last: 19, Number: -1, Before: 10, Read: 6, Time: 8},
		},
		Writes:   []Write{{"a", "raise", 20, 30, 8, 9, 7, 8, ""}},
		Discards: []Discard{{"a", 1, 5, 9}}}
	body, _ := b.encode(1 << 20)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		var b Batch
		if b.decode(body, make(map[string]string)) != nil {
			return
		}
		for _, l := range b.Loads {
			if l.Tag == "" || l.First < 1 || l.Last < l.First || l.Before < 0 || l.Before > l.Last+1 {
				t.Errorf("%+v", l)
			}
		}
		for _, w := range b.Writes {
			if w.Tag == "" || w.Before < 0 || w.After < w.Before {
				t.Errorf("%+v", w)
			}
		}
	})
}

// a kept is a stream in memory.
type kept struct {
	mu      sync.Mutex
	entries []Batch
	fail    error // of the next writes
	land    bool  // they are written all the same
	sizes   []int
}

func (k *kept) put(_ context.Context, body []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil && !k.land {
		return k.fail
	}
	var b Batch
	if err := b.decode(body, make(map[string]string)); err != nil {
		return err
	}
	k.entries = append(k.entries, b)
	k.sizes = append(k.sizes, len(body))
	return k.fail
}

// set decides how writes end from now on.
func (k *kept) set(fail error, land bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail, k.land = fail, land
}

// all returns the entries.
func (k *kept) all() []Batch {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.entries)
}

func (k *kept) loads() (all []Load) {
	for _, b := range k.all() {
		all = append(all, b.Loads...)
	}
	return all
}

// logged runs f with a log that writes to a kept.
func logged(t *testing.T, f func(l *Log, k *kept, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		l := New(Config{
			Put: k.put, Limit: func() int { return 4096 }, Late: func() time.Duration { return time.Second },
			Head: func() (Head, bool) { return Head{Process: "P"}, true },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = l.Run(ctx); close(done) }()
		f(l, k, func() { cancel(); <-done })
		cancel()
		<-done
	})
}

func load(n int64) Load { return Load{Tag: "a", First: n, Last: n, Time: n} }

func TestAnEntryThatCannotBeReadSaysWhy(t *testing.T) {
	for body, want := range map[string]string{
		"":                                   "unexpected end of JSON input",
		`{"grants":2,"process":"P"}`:         `version 2 of process "P", want version 1`,
		`{"grants":1}`:                       `version 1 of process ""`,
		`{"grants":1,"process":"P"}` + "\n?": "line 2 of entry 0 of process P",
	} {
		err := new(Batch).decode([]byte(body), make(map[string]string))
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

func TestAnEntryASecondHasAllGrants(t *testing.T) {
	logged(t, func(l *Log, k *kept, stop func()) {
		for n := range int64(2500) {
			l.Load(load(n + 1))
			time.Sleep(time.Millisecond)
		}
		l.Window(Window{Number: 3, From: 1, Until: 9, How: Closed})
		stop()
		if got := k.loads(); len(got) != 2500 || got[2499] != load(2500) {
			t.Errorf("%d loads are written", len(got))
		}
		last := k.all()[len(k.all())-1]
		if !last.End || k.all()[0].End || len(k.all()) > 20 {
			t.Errorf("%d entries, the last: %+v", len(k.all()), last.Head)
		}
		for i, b := range k.all() {
			if b.Entry != uint64(i+1) || k.sizes[i] > 4096+300 {
				t.Errorf("entry %d is numbered %d, and has %d bytes", i+1, b.Entry, k.sizes[i])
			}
		}
	})
}

func TestAnEntryHasLoadsOfOneEra(t *testing.T) {
	b := Batch{
		Loads:  []Load{{Tag: "a", Era: "A"}, {Tag: "a", Era: "I"}, {Tag: "b", Era: "A"}},
		Writes: []Write{{Tag: "a", Era: "I"}, {Tag: "b", Era: "A"}},
	}
	others := b.split()
	if b.Era != "A" || len(b.Loads) != 2 || len(b.Writes) != 1 || b.Writes[0].Tag != "b" ||
		len(others.Loads) != 1 || len(others.Writes) != 1 {
		t.Errorf("%+v, and for later %+v", b, others)
	}
	if left := others.split(); others.Era != "I" || !left.isEmpty() {
		t.Errorf("%+v, and for later %+v", others, left)
	}
}

func TestGrantsWaitWhileTheStreamIsAwayAndAreCountedBeyondABound(t *testing.T) {
	logged(t, func(l *Log, k *kept, stop func()) {
		k.set(errors.New("away"), false)
		const more = 1000
		l.Load(load(1))
		time.Sleep(10 * time.Second)
		for n := range int64(maxKept + more) {
			l.Load(load(n + 2))
		}
		time.Sleep(time.Minute)
		if len(k.all()) > 0 {
			t.Fatalf("%d entries", len(k.all()))
		}
		k.set(nil, false)
		time.Sleep(10 * time.Minute)
		lost := uint64(0)
		for _, b := range k.all() {
			lost += b.Lost
		}
		if got := k.loads(); len(got) != maxKept+1 || lost != more {
			t.Errorf("%d loads are written and %d lost, want %d and %d", len(got), lost, maxKept+1, more)
		}
	})
}

func TestAnEntryWhoseAcknowledgementWasLostIsWrittenAgainAndHeededOnce(t *testing.T) {
	logged(t, func(l *Log, k *kept, stop func()) {
		k.set(errors.New("no acknowledgement"), true)
		l.Load(load(1))
		time.Sleep(3500 * time.Millisecond)
		k.set(nil, false)
		l.Load(load(2))
		stop()
		if len(k.all()) < 4 {
			t.Fatalf("%d entries", len(k.all()))
		}
		a := NewAudit(t.TempDir())
		defer a.Close()
		for i, b := range k.all() {
			if err := a.Add(At{Sequence: uint64(i + 1)}, &b); err != nil {
				t.Fatal(err)
			}
		}
		err := a.Judge(func(f Finding) {
			if f.Kind == Repeated {
				t.Errorf("%v", f)
			}
		}, func(int64) {})
		if err != nil || a.Loads != 2 || a.Missing != 0 {
			t.Errorf("%d loads, %d missing entries, %v", a.Loads, a.Missing, err)
		}
	})
}

func TestTheLastLoadsOfATagAreRemembered(t *testing.T) {
	l := New(Config{})
	for n := range int64(100) {
		l.Load(load(n + 1))
	}
	last := l.Last("a")
	if len(last) != recentLoads || last[0] != load(100-recentLoads+1) || last[recentLoads-1] != load(100) {
		t.Errorf("%+v", last)
	}
	for n := range 2 * recentTags {
		l.Load(Load{Tag: fmt.Sprint("t", n), First: 1, Last: 1})
	}
	if n := len(l.recent); n > recentTags {
		t.Errorf("%d tags are remembered", n)
	}
}
