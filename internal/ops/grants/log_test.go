package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		l := New(func() Who { return Who{Process: "P"} }, s.write)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { l.Run(ctx, func() time.Duration { return time.Second }); close(done) }()
		f(l)
		cancel()
		<-done
	})
}

func TestLoadsThatFollowOneAnotherAreOneInTheLog(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for i := range int64(1000) {
			l.Load("a", Raise(10*i+1, 10*i+11))
			l.Load("a", ids(10*i+1, 10*i+10))
		}
		l.Load("a", ids(10031, 10040))
		l.Load("a", above(10041, 10051, 10060))
		time.Sleep(2 * interval)
		l.Load("a", ids(10061, 10070))
	})
	if len(s.entries) != 2 || !slices.Equal(s.entries[0].Loads["a"],
		[]Load{ids(1, 10000), ids(10031, 10040), above(10041, 10051, 10060)}) || s.entries[1].N != 2 {
		t.Errorf("%+v", s.entries)
	}
}

func TestARaiseThatIsALoadIsWrittenOnce(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for _, n := range []int64{1, 101, 201} {
			l.Load("a", Raise(n, n+100))
			if n != 101 { // whose load fails
				l.Load("a", ids(n, n+99))
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
		l.Load("a", Raise(101, 1201))
		l.Load("a", ids(1101, 1200))
	})
	if got := s.entries[0].Loads["a"]; !slices.Equal(got, []Load{Raise(101, 1201), ids(1101, 1200)}) {
		t.Errorf("%+v", got)
	}
}

func TestEntriesAreOfBoundedLength(t *testing.T) {
	var s sink
	logged(t, &s, func(l *Log) {
		for i := range 5000 {
			l.Load(fmt.Sprintf("%.128s", fmt.Sprint(i, strings.Repeat("t", 128))), above(1<<61, 1<<62, 1<<62))
		}
	})
	for _, e := range s.entries {
		if body, _ := json.Marshal(e); len(body) > 50<<10 || len(s.entries) < 2 {
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
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[{"a":1,"f":1,"l":9}]},"windows":[{}]}`))
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[{"f":9223372036854775807,"l":9223372036854775807}]}}`))
	f.Add([]byte(`{"process":"P","n":1,"loads":{"a":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var e Entry
		if json.Unmarshal(body, &e) != nil {
			return
		}
		var h History
		h.Add(&e)
		h.Judge(Scope{}, map[string]Mark{"a": at(5)})
	})
}
