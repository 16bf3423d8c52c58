package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// stream makes a stream of grants with entries, and returns it with a reader.
func stream(t *testing.T, entries ...string) (jetstream.Stream, jetstream.JetStream, *Reader) {
	t.Helper()
	js := natstest.JetStream(t, natstest.Start(t))
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_id_grants", Subjects: []string{"$KV.id_grants.>"}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := js.Publish(t.Context(), "$KV.id_grants.log", []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(t.Context(), js, "id_grants")
	if err != nil {
		t.Fatal(err)
	}
	r.within = time.Second
	return s, js, r
}

func read(t *testing.T, r *Reader, since time.Time) (Scope, string) {
	t.Helper()
	var got []string
	s, err := r.Read(t.Context(), since, func(e *Entry) {
		got = append(got, fmt.Sprintf("%d %s %d", e.Sequence, e.Process, e.N))
	})
	if err != nil {
		t.Error(err)
	}
	return s, strings.Join(got, ", ")
}

func entry(process string, n uint64) string {
	body, _ := json.Marshal(Entry{Who: Who{Process: process}, N: n})
	return string(body)
}

func TestAReaderSkipsCopiesAndCountsWhatIsMissing(t *testing.T) {
	_, js, r := stream(t, entry("A", 1), entry("B", 1), entry("A", 2), entry("A", 2), "{", entry("A", 5), entry("C", 3))
	if _, err := js.Publish(t.Context(), "$KV.id_grants.log", []byte(entry("A", 6))); err != nil { // after Open
		t.Fatal(err)
	}
	s, got := read(t, r, time.Time{})
	if want := "1 A 1, 2 B 1, 3 A 2, 6 A 5, 7 C 3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.Entries != 5 || s.Missing != 4 || s.From.IsZero() || r.Cut || r.Last != 7 {
		t.Errorf("%+v of %+v", s, r)
	}
	if s, got := read(t, r, time.Now().Add(time.Hour)); s.Entries != 0 || s.Missing != 0 || got != "" {
		t.Errorf("%+v since later, %s", s, got)
	}
}

func TestAReaderOfACutStreamMissesNothingThatIsGone(t *testing.T) {
	s, js, _ := stream(t, entry("A", 1), entry("A", 2), entry("A", 3), entry("A", 4), entry("A", 5))
	for _, n := range []uint64{1, 3, 5} {
		if err := s.DeleteMsg(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(t.Context(), js, "id_grants")
	if err != nil {
		t.Fatal(err)
	}
	r.within = time.Second
	if s, got := read(t, r, time.Time{}); got != "2 A 2, 4 A 4" || s.Missing != 1 || !r.Cut {
		t.Errorf("%+v, %s", s, got)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, got := read(t, r, time.Time{}); s.Entries != 0 || got != "" {
		t.Errorf("%+v, %s", s, got)
	}
	if r, err = Open(t.Context(), js, "id_grants"); err != nil || !r.Cut {
		t.Fatal(r, err)
	}
	if s, _ := read(t, r, time.Time{}); s.Entries != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := Open(t.Context(), js, "id_other"); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// Else an audit would find nothing wrong in entries that it has not read.
func TestAReaderReadsAllOrSaysThatItDidNot(t *testing.T) {
	all := make([]string, 5000)
	for i := range all {
		all[i] = entry("A", uint64(i+1))
	}
	_, js, r := stream(t, all...)
	n := 0
	if _, err := r.Read(t.Context(), time.Time{}, func(*Entry) { n++ }); err != nil || n != 5000 {
		t.Errorf("%d, %v", n, err)
	}
	r.Last += 5 // the leader has more than the server that delivers
	_, err := r.Read(t.Context(), time.Time{}, func(*Entry) {
		if n++; n == 6000 {
			js.Conn().Close()
		}
	})
	if !errors.Is(err, ErrIncomplete) || slices.Contains([]int{5000, 10_005}, n) {
		t.Errorf("%d entries, %v", n, err)
	}
}
