package grants

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A sink keeps the entries that a log writes, and fails as often as it is told.
type sink struct {
	t        *testing.T
	mu       sync.Mutex
	entries  []Entry
	failures int
	hangs    atomic.Bool
	unknown  bool // who the writer is
	lost     uint64
}

func (s *sink) config() Config {
	return Config{
		Limit: func() int { return 1 << 18 }, Late: func() time.Duration { return time.Second },
		Who: func() (Who, bool) { return Who{Process: "P", Instance: "I"}, !s.unknown },
		Wrote: func(_ error, lost uint64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost = lost
		},
		Put: func(ctx context.Context, body []byte) error {
			if s.hangs.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.failures--; s.failures >= 0 {
				return errors.New("no room")
			}
			var e Entry
			if err := json.Unmarshal(body, &e); err != nil || !e.isValid() {
				s.t.Errorf("%v of %s", err, body)
			}
			s.entries = append(s.entries, e)
			return nil
		},
	}
}

// logged runs a log in virtual time while f adds to it.
func logged(t *testing.T, s *sink, f func(l *Log)) {
	t.Helper()
	s.t = t
	synctest.Test(t, func(t *testing.T) {
		l := New(s.config())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		f(l)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLoadsThatFollowOneAnotherAreOneInTheLog(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for i := range int64(1000) {
			l.Load("a", "E", Load{First: 10*i + 1, Last: 10*i + 10, Time: 5, Strict: true})
		}
		for _, g := range []Load{
			{First: 10001, Last: 10010, Time: 1005, Strict: true}, // a second later
			{First: 10011, Last: 10020, Time: 1006},               // not strict
			{First: 10031, Last: 10040, Time: 1006},
			{First: 10041, Last: 10050, Time: 1006, Above: 10031},
		} {
			l.Load("a", "E", g)
		}
	})
	if len(s.entries) != 1 || len(s.entries[0].Loads["a"]) != 5 || s.entries[0].Loads["a"][0].Last != 10000 {
		t.Errorf("%+v", s.entries)
	}
}

func TestARaiseThatIsALoadIsWrittenOnce(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for _, n := range []int64{1, 101, 201} {
			l.Raise("a", Span{n, n + 100})
			if n != 101 { // whose load fails
				l.Load("a", "E", ids(n, n+99))
			}
		}
	})
	if e := s.entries[0]; len(e.Loads["a"]) != 2 || len(e.Raised["a"]) != 1 || e.Raised["a"][0] != (Span{101, 201}) {
		t.Errorf("%+v", e)
	}
}

func TestEntriesAreOfOneEraAndOfBoundedLength(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		l.Load("a", "E1", ids(1, 100))
		l.Raise("b", Span{1, 2})
		l.Load("a", "E2", ids(101, 200))
		l.Load("a", "E2", ids(201, 300))
	})
	if len(s.entries) != 2 || s.entries[0].Era != "E1" || s.entries[1].Era != "E2" || s.entries[1].N != 2 {
		t.Errorf("%+v", s.entries)
	}
	var long sink
	logged(t, &long, func(l *Log) {
		for range 5000 {
			l.Load(strings.Repeat("t", 100), "E1", Load{First: 1, Last: 1 << 62, Time: 1 << 62, Above: 1 << 61})
		}
	})
	for _, e := range long.entries {
		if body, _ := json.Marshal(e); len(body) > 1<<19 {
			t.Errorf("an entry of %d bytes", len(body))
		}
	}
}

func TestWhatCannotBeWrittenWaitsWithinABoundAndNobodyElseDoes(t *testing.T) {
	var s sink
	s.hangs.Store(true)
	logged(t, &s, func(l *Log) {
		began := time.Now()
		for range maxKept + 7 {
			l.Raise("a", Span{1, 2})
			if time.Since(began) > 0 {
				t.Fatal("adding waits")
			}
		}
		l.Window(Window{Number: 5})
		time.Sleep(time.Minute)
		s.hangs.Store(false)
		time.Sleep(time.Minute)
	})
	kept, lost := 0, uint64(0)
	for i, e := range s.entries {
		kept, lost = kept+len(e.Raised["a"])+len(e.Windows), lost+e.Lost
		if e.N != uint64(i+1) {
			t.Errorf("entry %d is number %d", i+1, e.N)
		}
	}
	if kept != maxKept || lost != 8 || s.lost != 8 {
		t.Errorf("%d kept, %d lost, %d reported", kept, lost, s.lost)
	}
}

func TestWhatWaitsIsWrittenAtTheStop(t *testing.T) {
	s := sink{failures: 3}
	logged(t, &s, func(l *Log) { l.Window(Window{Number: 5}) })
	if len(s.entries) != 1 || s.entries[0].Who != (Who{Process: "P", Instance: "I"}) {
		t.Errorf("%+v", s.entries)
	}
	nobody := sink{unknown: true}
	logged(t, &nobody, func(l *Log) { l.Window(Window{Number: 5}) }) // and ends
}

func TestMarksThatACommandRaisesAreEntries(t *testing.T) {
	raised := make(map[string][]Span)
	for i := range 1001 {
		raised[strings.Repeat("t", i+1)] = []Span{{1, 2}}
	}
	var all []Entry
	put := func(body []byte) error {
		var e Entry
		if err := json.Unmarshal(body, &e); err != nil || !e.isValid() {
			t.Error(err)
		}
		all = append(all, e)
		return nil
	}
	if err := Append(put, "natsid store move", raised); err != nil || len(all) != 2 || len(all[1].Raised) != 1 ||
		all[1].N != 2 || all[0].Process != all[1].Process {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[{"f":1,"l":9,"t":5}]},"raised":{"a":[[1,10]]},"windows":[{}]}`))
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var e Entry
		if json.Unmarshal(body, &e) != nil || !e.isValid() {
			return
		}
		var a Audit
		a.Add(At{Sequence: 1}, &e)
		a.Judge(Scope{}, map[string]Mark{"a": {5, 5}})
	})
}
