package lineage

import (
	"context"
	"testing"
	"time"
)

// A resume proposes by the time of the state found how far tags may have moved. Whatever shows that the bucket went
// back, a prover says that time as far as its own key shows it, and never too late.
func TestAProverSaysOfWhenTheStateFoundIs(t *testing.T) {
	for name, tc := range map[string]struct {
		writes  int  // of the own key since the backup
		proved  bool // by the acknowledgement of another write
		unknown bool
	}{
		"the own key is an older one":                             {writes: 3},
		"the own key is an older one, another write is the proof": {writes: 3, proved: true},
		"the own key is the last one, another write is the proof": {proved: true, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, options{noFaults: true}, nil)
			w.quiet, w.depth = true, 3
			a := w.procs[0]
			w.sound(t, a)
			w.sound(t, a)
			w.now += time.Second
			backup := w.save()
			for range tc.writes {
				w.sound(t, a)
			}
			w.now += time.Minute
			w.bring(*backup)
			if tc.proved {
				a.member.WentBack("a write was given a lower revision than another before")
			}
			_ = a.check(context.Background(), true)
			in := a.member.Identity().Incident
			if in == nil {
				t.Fatal("no incident is open")
			}
			switch since := in.Since(); {
			case since.IsZero() && tc.unknown:
			case since.After(at(backup.saved)), since.Before(at(backup.saved - 5*time.Second)):
				t.Errorf("the state found is of %v, want a time of the last seconds before %v", since, at(backup.saved))
			}
			if w.breach != nil {
				t.Error(w.breach)
			}
		})
	}
}

// What the entry of the own key says of the time of the state found, by whose write it is.
func TestTheTimeOfAStateFoundIsNeverTooLate(t *testing.T) {
	sent, looked, before, entry := at(2*time.Second), at(time.Second), at(8*time.Second), at(9*time.Second)
	for name, tc := range map[string]struct {
		token    string
		by       string        // the process that wrote a volatile entry; "" for this worker
		since    time.Duration // later than the write before
		isRemade bool
		copied   bool
		want     time.Time
	}{
		"an earlier write": {token: "earlier", want: before},
		"an earlier write, after a clock was set back": {token: "earlier", since: time.Hour, want: entry},
		"the last write": {token: "last"},
		"the last write, and the stream is another one": {token: "last", isRemade: true, want: looked},
		"the write under way, which may land late":      {token: "flight"},
		"that one, and the stream is another one":       {token: "flight", isRemade: true, want: looked},
		"that of a worker which took the key over":      {token: "other", by: "w2"},
		"the last write, in a copy of the data":         {token: "last", copied: true, want: entry},
		"none":                                          {},
	} {
		k := own{cfg: &Config{Process: "w1"}, memory: memory{
			Written: written{Token: "last", Revision: 5, Sent: sent}, Flight: flight{Token: "flight", Highest: 10},
			Looked: looked, copied: tc.copied,
		}}
		var o *ownEntry
		if tc.token != "" {
			o = &ownEntry{Version: Version, Token: tc.token, Time: entry, Since: before.Add(tc.since), Process: "w1"}
		}
		if tc.by != "" {
			o.Process, o.Volatile = tc.by, true
		}
		if got := k.foundAt(o, 5, tc.isRemade); !got.Equal(tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
