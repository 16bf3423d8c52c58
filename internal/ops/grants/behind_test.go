package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A replica that lags has only those entries that are on the subject early, for so many consumers.
type lagging struct {
	jetstream.Stream
	times int
}

func (l *lagging) CreateConsumer(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if l.times--; l.times >= 0 {
		cfg.FilterSubject = "$KV.id_grants.early"
	}
	return l.Stream.CreateConsumer(ctx, cfg)
}

// Else an audit would find nothing wrong in entries that it has not read.
func TestAScanReadsAllThatTheLeaderHas(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		entries string // e: the replica that lags has it; l: it has not; d: it was deleted
		times   int
		left    string // what the error says is left; "" for no error
	}{
		{"the last ones are missing", "eeelll", 3, ""},
		{"all are missing", "lllll", 2, ""},
		{"some between are missing", "eelllee", 1, ""},
		{"the last ones stay missing", "eeelll", 1 << 30, "entries 4 to 6 are left"},
		{"some between stay missing", "eelllee", 1 << 30, "entries 3 to 7 are left"},
		{"the last ones were deleted", "eeeedd", 0, ""},
		{"some between were deleted", "eeddedde", 0, ""},
		{"all were deleted", "ddd", 0, ""},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			js, _ := writtenTo(t, nil)
			for i, e := range tc.entries {
				key := map[rune]string{'e': "early", 'l': "late", 'd': "early"}[e]
				body := fmt.Appendf(nil, `{"grants":1,"process":"A1","entry":%d}`, i+1)
				if _, err := js.Publish(t.Context(), "$KV.id_grants."+key, body); err != nil {
					t.Fatal(err)
				}
			}
			r, err := Open(t.Context(), js, "id_grants", nil)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []uint64
			for i, e := range tc.entries {
				if seq := uint64(i + 1); e != 'd' {
					want = append(want, seq)
				} else if err := r.stream.DeleteMsg(t.Context(), seq); err != nil {
					t.Fatal(err)
				}
			}
			r.stream = &lagging{r.stream, tc.times}
			if tc.left != "" {
				r.within = time.Second
				want = want[:strings.Index(tc.entries, "l")]
			}
			_, err = r.Scan(t.Context(), r.First, r.Last, func(at At, b *Batch) bool {
				got = append(got, at.Sequence)
				return true
			})
			if !slices.Equal(got, want) {
				t.Errorf("entries %v were read, want %v", got, want)
			}
			if (err != nil) != (tc.left != "") || err != nil && (!errors.Is(err, ErrIncomplete) ||
				!strings.Contains(err.Error(), tc.left)) {
				t.Errorf("%v, want %q", err, tc.left)
			}
		})
	}
}

// JetStream keeps 1,000 consumers of a stream by default: scans in a loop must not use them up.
func TestAScanSoonLeavesNoConsumer(t *testing.T) {
	t.Parallel()
	js, _ := writtenTo(t, nil)
	body := []byte(`{"grants":1,"process":"A1","entry":1}`)
	if _, err := js.Publish(t.Context(), "$KV.id_grants.log", body); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), js, "id_grants", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Scan(t.Context(), r.First, r.Last, func(At, *Batch) bool { return true }); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		s, err := js.Stream(t.Context(), "KV_id_grants")
		if err == nil && s.CachedInfo().State.Consumers == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("consumers are left: %v", err)
		}
	}
}

// A silent JetStream answers none of so many requests, as a leader does that is gone.
type silent struct {
	jetstream.JetStream
	lost *int
}

func (s silent) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if err := s.lose(ctx); err != nil {
		return nil, err
	}
	stream, err := s.JetStream.Stream(ctx, name)
	return silentStream{stream, s}, err
}

func (s silent) lose(ctx context.Context) error {
	if *s.lost--; *s.lost < 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

type silentStream struct {
	jetstream.Stream
	of silent
}

func (s silentStream) CreateConsumer(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if err := s.of.lose(ctx); err != nil {
		return nil, err
	}
	return s.Stream.CreateConsumer(ctx, cfg)
}

// Else an audit while servers are restarted would wait in silence until its time is over.
func TestARequestThatIsNotAnsweredIsRepeatedAndSaid(t *testing.T) {
	t.Parallel()
	js, _ := writtenTo(t, nil)
	body := []byte(`{"grants":1,"process":"A1","entry":1}`)
	if _, err := js.Publish(t.Context(), "$KV.id_grants.log", body); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lost, said := 1, 0
	r, err := Open(ctx, silent{js, &lost}, "id_grants", func(string) { said++ })
	if err != nil || said != 1 {
		t.Fatalf("opened: %v; said %d times that it waits, want once", err, said)
	}
	lost = 1
	read := 0
	_, err = r.Scan(ctx, r.First, r.Last, func(At, *Batch) bool { read++; return true })
	if err != nil || read != 1 || said != 2 {
		t.Errorf("%d entries were read, %v; said %d times that it waits, want twice", read, err, said)
	}
}
