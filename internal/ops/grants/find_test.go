package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// written returns a reader of entries that were published to a real server.
func written(t testing.TB, entries []Batch) *Reader {
	t.Helper()
	_, r := writtenTo(t, entries)
	return r
}

func writtenTo(t testing.TB, entries []Batch) (jetstream.JetStream, *Reader) {
	t.Helper()
	js := natstest.JetStream(t, natstest.Start(t))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_id_grants", Subjects: []string{"$KV.id_grants.>"}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	var acks []jetstream.PubAckFuture
	for i := range entries {
		body, _ := entries[i].encode(1 << 20)
		ack, err := js.PublishMsgAsync(&nats.Msg{Subject: "$KV.id_grants.log", Data: body})
		if err != nil {
			t.Fatal(err)
		}
		if acks = append(acks, ack); len(acks) == 1000 {
			await(t, acks)
			acks = acks[:0]
		}
	}
	await(t, acks)
	r, err := Open(t.Context(), js, "id_grants", nil)
	if err != nil {
		t.Fatal(err)
	}
	return js, r
}

func await(t testing.TB, acks []jetstream.PubAckFuture) {
	t.Helper()
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			t.Fatal(err)
		case <-time.After(20 * time.Second):
			t.Fatal("no acknowledgement")
		}
	}
}

func TestALoadIsFoundByBisectionWhereItsTagIsBusyAndByReadingOtherwise(t *testing.T) {
	t.Parallel()
	const n = 1000
	var entries []Batch
	for i := range int64(n) {
		b := by("A1", uint64(i+1), ids("busy", 10*i+1, 10*i+9)) // 10 i is a hole
		if i == 321 {
			b.Loads = append(b.Loads, ids("rare", 100, 199))
		}
		entries = append(entries, b)
	}
	entries = append(entries, by("B1", 1, ids("busy", 3210, 3210)),
		by("B1", 1, ids("busy", 3210, 3210))) // late, and twice
	r := written(t, entries)
	for _, tc := range []struct {
		tag   string
		id    int64
		found int
	}{
		{"busy", 1, 1}, {"busy", 3210, 1}, {"busy", 10*500 + 3, 1}, {"busy", 10*(n-1) + 9, 1}, {"busy", 777 * 10, 0},
		{"busy", 10 * n, 0}, {"rare", 150, 1}, {"rare", 200, 0}, {"none", 1, 0},
	} {
		found, err := r.FindLoads(t.Context(), tc.tag, tc.id)
		if err != nil || len(found) != tc.found {
			t.Errorf("ID %d of %s: %+v, %v, want %d", tc.id, tc.tag, found, err, tc.found)
			continue
		}
		for _, f := range found {
			if f.Load.First > tc.id || f.Load.Last < tc.id || f.Load.Tag != tc.tag || f.Head.Process == "" {
				t.Errorf("ID %d of %s: %+v", tc.id, tc.tag, f)
			}
		}
		if r.only != nil {
			t.Fatal("the reader goes on with one tag only")
		}
	}
	r.Only("rare")
	loads := 0
	_, err := r.Scan(t.Context(), r.First, r.Last, func(_ At, b *Batch) bool {
		loads += len(b.Loads)
		if b.Process == "" {
			t.Error("an entry without its head")
		}
		return true
	})
	if r.only = nil; err != nil || loads != 2 {
		t.Errorf("%d loads were read of the entries that have the rare tag, want 2; %v", loads, err)
	}
	first, last, err := r.bisect(t.Context(), "busy", 10*500+3)
	if err != nil || first > r.First+500 || last < r.First+500 || last-first > n/5 {
		t.Errorf("bisection leads to %d-%d of %d-%d, %v", first, last, r.First, r.Last, err)
	}
}

func TestAWindowIsFoundByTheTimeInTheID(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMilli()
	r := written(t, []Batch{
		by("A1", 1, win(now, now+1000, "acquired")), by("A1", 2, win(now, now+2000, "renewed")),
		by("A1", 3, win(now, now+1500, Closed)), by("B1", 1, win(now+1500, now+9000, "acquired")),
		by("C1", 1, win(now-1e8, now-1e8+1000, "acquired")), // long ago, and written now
	})
	for at, want := range map[int64]string{
		now: "A1", now + 1200: "A1", now + 1499: "A1", now + 1500: "B1", now + 8999: "B1", now + 9000: "", now - 1: "",
		now - 1e8: "C1",
	} {
		found, err := r.FindWindows(t.Context(), 5, at)
		got := ""
		for _, f := range found {
			got += f.Head.Process
		}
		if err != nil || got != want {
			t.Errorf("%d ms later: %q, %v, want %q", at-now, got, err, want)
		}
	}
	if found, err := r.FindWindows(t.Context(), 6, now); err != nil || len(found) > 0 {
		t.Errorf("another number: %+v, %v", found, err)
	}
}

func TestAScanPassesOverWhatCannotBeReadAndEndsWithTheStream(t *testing.T) {
	t.Parallel()
	js, _ := writtenTo(t, []Batch{by("A1", 1), by("A1", 2), by("A1", 3)})
	for _, body := range []string{"", "{}", `{"grants":2,"process":"Z"}`,
		`{"grants":1,"process":"Z"}` + "\n+ 1 2 3 4"} {
		if _, err := js.Publish(t.Context(), "$KV.id_grants.log", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(t.Context(), js, "id_grants", nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	bad, err := r.Scan(t.Context(), 0, 1<<60, func(at At, b *Batch) bool {
		seen = append(seen, fmt.Sprint(at.Sequence-r.First, b.Entry))
		return true
	})
	if err != nil || bad != 4 || fmt.Sprint(seen) != "[0 1 1 2 2 3]" {
		t.Errorf("%d cannot be read, %v are, %v", bad, seen, err)
	}
	if _, err := Open(t.Context(), js, "none", nil); !errors.Is(err, ErrNone) {
		t.Errorf("no stream: %v", err)
	}
	if err := js.DeleteStream(t.Context(), "KV_id_grants"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := r.Scan(ctx, r.First, r.Last, func(At, *Batch) bool { return true }); err == nil || ctx.Err() != nil {
		t.Errorf("a stream that is gone: %v", err)
	}
}

// A request for entries can be lost on its way to a consumer that is new.
func TestAScanGoesOnWhereAConsumerFallsSilent(t *testing.T) {
	t.Parallel()
	js, _ := writtenTo(t, []Batch{by("A1", 1)})
	const all = 6000 // more than are asked for at once
	for range all - 1 {
		if _, err := js.PublishAsync("$KV.id_grants.log", []byte(`{"grants":1,"process":"A1"}`),
			jetstream.WithStallWait(20*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	r, err := Open(t.Context(), js, "id_grants", nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	_, err = r.Scan(t.Context(), 0, 1<<60, func(at At, _ *Batch) bool {
		if seen = append(seen, at.Sequence); len(seen) > 1 {
			return true
		}
		for name := range r.stream.ConsumerNames(t.Context()).Name() {
			if _, err := r.stream.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if err != nil || len(seen) != all || !slices.IsSorted(seen) || seen[all-1] != r.Last {
		t.Errorf("%d entries of %d, %v", len(seen), all, err)
	}
}

// leaderless is a JetStream whose stream has no leader when it is asked for the first times.
type leaderless struct {
	jetstream.JetStream
	times int
}

type leaderlessStream struct {
	jetstream.Stream
	of *leaderless
}

func (l *leaderless) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return leaderlessStream{s, l}, err
}

func (s leaderlessStream) CachedInfo() *jetstream.StreamInfo {
	info := *s.Stream.CachedInfo()
	info.Cluster = &jetstream.ClusterInfo{Leader: "n1"}
	if s.of.times > 0 {
		s.of.times--
		info.Cluster.Leader, info.State = "", jetstream.StreamState{FirstSeq: 1}
	}
	return &info
}

func (s leaderlessStream) Info(ctx context.Context, _ ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	return s.CachedInfo(), ctx.Err()
}

// A server answers for such a stream with its own copy, which may be empty.
func TestAStreamWithoutALeaderIsNotTakenForAnEmptyOne(t *testing.T) {
	js, _ := writtenTo(t, make([]Batch, 5))
	r, err := Open(t.Context(), &leaderless{js, 2}, "id_grants", nil)
	if err != nil || r.Last-r.First != 4 {
		t.Errorf("%+v, %v, want five entries once there is a leader", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Open(ctx, &leaderless{js, 1000}, "id_grants", nil); !errors.Is(err, ErrNoLeader) {
		t.Errorf("%v, want %v", err, ErrNoLeader)
	}
}
