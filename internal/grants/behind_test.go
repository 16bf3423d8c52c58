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
			r, err := Open(t.Context(), js, "id_grants")
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
