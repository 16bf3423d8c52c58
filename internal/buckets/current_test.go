package buckets_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestWhatAListingLacksIsReadFromTheLeader(t *testing.T) {
	b := buckets.New(buckets.OnJetStream(natstest.Behind(t, natstest.Start(t), "b")), buckets.Config{Name: "b"})
	put := func(key string) uint64 {
		t.Helper()
		revision, err := b.Put(t.Context(), key, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	check := func(upTo uint64, want string) {
		t.Helper()
		all, got, err := b.Current(t.Context())
		keys := strings.Join(slices.Sorted(maps.Keys(all)), " ")
		if err != nil || keys != want || got != upTo {
			t.Errorf("%q up to %d, %v, want %q up to %d", keys, got, err, want, upTo)
		}
	}
	check(0, "")
	check(put("old.a"), "old.a")
	check(put("new"), "new old.a")
	put("again")
	revision := put("new")
	check(revision, "again new old.a")
	if all, err := b.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v: the listing does not lack keys", all, err)
	}
	if err := b.Remove(t.Context(), "new", revision); err != nil {
		t.Fatal(err)
	}
	check(revision+1, "again old.a")
	check(put(buckets.Own+".w.x"), "again old.a")
	if all, err := b.AllOwn(t.Context(), buckets.Own+".w."); err != nil || len(all) != 1 {
		t.Errorf("%v, %v, want one key", all, err)
	}
}
