package witness

import (
	"context"
	"os"
	"testing"

	"github.com/natsid/natsid/segment"
)

// raise raises all tags as `natsid tag raise --all` does.
func raise(t *testing.T, one *worker, by int64) {
	t.Helper()
	tags, err := one.store.List(context.Background(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range tags {
		if err := one.store.Lift(context.Background(), tag.Name, segment.Floor{End: tag.MaxID + by}); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.witness.Raised(context.Background(), by); err != nil {
		t.Fatal(err)
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
