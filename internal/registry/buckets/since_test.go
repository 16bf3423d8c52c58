package buckets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestWhatWasWrittenSinceARevisionIsReadInOrder(t *testing.T) {
	url := natstest.Start(t)
	b := buckets.New(buckets.OnJetStream(natstest.JetStream(t, url)), buckets.Config{Name: "b"})
	put := func(key string) uint64 {
		t.Helper()
		revision, err := b.Put(t.Context(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	const prefix = buckets.Own + ".s."
	check := func(from uint64, want string) {
		t.Helper()
		entries, err := b.Since(t.Context(), prefix, from)
		var got []string
		for _, e := range entries {
			key := strings.TrimPrefix(e.Key, prefix)
			if e.Removed {
				key += "!"
			}
			got = append(got, key)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q since %d, %v, want %q", got, from, err, want)
		}
	}
	check(1, "")
	first := put(prefix + "a")
	put("a")
	put(buckets.Own + ".w.a")
	second := put(prefix + "b")
	put(buckets.Own)
	check(1, "a b")
	check(first+1, "b")
	check(second+1, "")
	put(prefix + "a")
	if err := remove(t, url, prefix+"b"); err != nil {
		t.Fatal(err)
	}
	check(first, "a b!")
}

// breaks is a JetStream that has no more than so many answers.
type breaks struct {
	buckets.Streams
	answers int
}

var errBroken = errors.New("broken")

func (b *breaks) Next(ctx context.Context, bucket, prefix string, from uint64) (buckets.Entry, error) {
	if b.answers--; b.answers < 0 {
		return buckets.Entry{}, errBroken
	}
	return b.Streams.Next(ctx, bucket, prefix, from)
}

// Where very many were written, and JetStream is far away, the next read begins where this one ended.
func TestWhatWasReadBeforeAnErrorIsNotReadAgain(t *testing.T) {
	streams := &breaks{Streams: buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t))), answers: 2}
	b := buckets.New(streams, buckets.Config{Name: "b"})
	for i := range 3 {
		if _, err := b.Put(t.Context(), fmt.Sprint("s.", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := b.Since(t.Context(), "s.", 1); !errors.Is(err, errBroken) || len(entries) != 2 {
		t.Errorf("%v, %v, want two entries and an error", entries, err)
	}
}
