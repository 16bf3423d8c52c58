package grants

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/workerid"
)

// A sink keeps the entries that a log writes, and fails as often as it is told.
type sink struct {
	entries  []Entry
	failures int
	hangs    atomic.Bool
}

func (s *sink) write(ctx context.Context, body []byte) error {
	if s.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.failures--; s.failures >= 0 {
		return errors.New("no room")
	}
	var e Entry
	err := json.Unmarshal(body, &e)
	s.entries = append(s.entries, e)
	return err
}

// logged runs a log in virtual time while f adds to it.
func logged(t *testing.T, s *sink, f func(l *Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &Log{Who: func() Who { return Who{Process: "P"} }, Write: s.write}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { l.Run(ctx, func() time.Duration { return time.Second }); close(done) }()
		f(l)
		cancel()
		<-done
	})
}

func TestLoadsThatFollowOneAnotherAreOneInTheLog(t *testing.T) {
	other := segment.Run{By: "Q", From: 10041, To: 10061}
	var s sink
	logged(t, &s, func(l *Log) {
		for i := range int64(50) {
			l.Raise("a", 10*i+1, 10*i+11, segment.Run{})
			l.Load("a", loaded(10*i+1, 10*i+11))
		}
		l.Load("a", loaded(10031, 10041))
		l.Raise("a", 10041, 10061, segment.Run{})
		l.Load("a", loaded(10051, 10061))
		l.Load("a", loaded(10021, 10051)) // a kept range, which is no raise
		l.Raise("a", 10061, 10071, other)
		l.Load("a", loaded(10061, 10071))
		time.Sleep(2 * interval)
		l.Load("a", loaded(10071, 10081))
	})
	if len(s.entries) != 2 || !slices.Equal(s.entries[0].Loads["a"],
		[]Load{ids(1, 500), ids(10031, 10040), above(10041, 10051, 10060), ids(10021, 10050),
			{First: 10061, Last: 10070, Before: other}}) || s.entries[1].N != 2 {
		t.Errorf("%+v", s.entries)
	}
}

func TestARaiseThatIsALoadIsWrittenOnce(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for _, n := range []int64{1, 101, 201} {
			l.Raise("a", n, n+100, segment.Run{})
			if n != 101 { // whose load fails
				l.Load("a", loaded(n, n+100))
			}
		}
	})
	if got := s.entries[0].Loads["a"]; !slices.Equal(got, []Load{ids(1, 100), above(101, 201, 300)}) {
		t.Errorf("%+v", got)
	}
}

// As after a lost answer: the load was found by its token, and replaces no mark any more.
func TestTheHoleOfARaiseIsKept(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		l.Raise("a", 101, 1201, segment.Run{})
		l.Load("a", loaded(1101, 1201))
		l.Raise("a", 1201, 1301, segment.Run{})
		time.Sleep(2 * interval)
		l.Load("a", loaded(1251, 1301))
	})
	if got := s.entries[0].Loads["a"]; !slices.Equal(got, []Load{above(101, 1101, 1200), raise(1201, 1301)}) ||
		!slices.Equal(s.entries[1].Loads["a"], []Load{ids(1251, 1300)}) {
		t.Errorf("%+v", s.entries)
	}
}

func TestEntriesAreOfBoundedLength(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for i := range 5000 {
			tag := fmt.Sprintf("%.128s", fmt.Sprint(i, strings.Repeat("t", 128)))
			l.Raise(tag, 1<<61, 1<<62, segment.Run{By: rand.Text(), From: 1 << 61, To: 1 << 61})
		}
	})
	for _, e := range s.entries {
		if body, _ := json.Marshal(e); len(body) > 60_000 || len(s.entries) < 2 {
			t.Errorf("an entry of %d bytes", len(body))
		}
	}
}

func TestWhatCannotBeWrittenWaitsWithinABoundAndNobodyElseDoes(t *testing.T) {
	var s sink
	s.hangs.Store(true)
	logged(t, &s, func(l *Log) {
		began := time.Now()
		for range maxQueue*maxEntry + 7 {
			l.Window(workerid.Window{Number: 4})
			if time.Since(began) > 0 {
				t.Fatal("adding waits")
			}
		}
		time.Sleep(time.Minute)
		s.hangs.Store(false)
		time.Sleep(time.Minute)
		l.Window(workerid.Window{Number: 5})
	})
	last, n := s.entries[len(s.entries)-1], len(s.entries)
	if len(last.Windows) != 1 || last.N != uint64(n+7) || s.entries[n-2].N != uint64(n-1) {
		t.Errorf("the last of %d entries is number %d", n, last.N)
	}
}

func TestWhatWaitsIsWrittenAtTheStop(t *testing.T) {
	s := sink{failures: 3}
	logged(t, &s, func(l *Log) { l.Window(workerid.Window{Number: 5}) })
	if len(s.entries) != 1 {
		t.Errorf("%+v", s.entries)
	}
	silent := sink{failures: 1 << 30}
	logged(t, &silent, func(l *Log) { l.Window(workerid.Window{Number: 5}) }) // and ends
}

// Entries are what strangers may have written.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[{"above":"1","first":"1","last":"9"}]},"windows":[{}]}`))
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[{"first":"9223372036854775807","last":"9223372036854775807"}]}}`))
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var e Entry
		if json.Unmarshal(body, &e) != nil {
			return
		}
		var h History
		h.Add(&e)
		h.Judge(map[string]Mark{"a": at(5)})
	})
}
