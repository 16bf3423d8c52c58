package lineage

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

func TestADistanceIsFarAboveWhatIsOnRecord(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	since := now.Add(-100 * time.Second)
	old := since.Add(-2 * time.Hour).UnixMilli()
	got, err := Distance(map[string]segment.Record{
		"busy":  {Since: old, Peak: 6000, Largest: 500}, // 100 a second
		"quiet": {Since: old, Peak: 60, Largest: 20},
		"young": {Since: since.Add(-time.Minute).UnixMilli(), Peak: 60, Largest: 20},
		"new":   {}, // no load is on record: it was lost, or lifted
	}, since, now)
	want := map[string]int64{"busy": 105_000, "quiet": 1200, "young": 105_000, "new": 105_000}
	if err != nil {
		t.Fatal(err)
	}
	for tag, d := range want {
		if got[tag] != d {
			t.Errorf("%s: %d, want %d", tag, got[tag], d)
		}
	}
	if _, err := Distance(map[string]segment.Record{"new": {}}, since, now); !errors.Is(err, ErrNoRecord) {
		t.Errorf("without any record: %v, want ErrNoRecord", err)
	}
	if got, err := Distance(nil, since, now); err != nil || len(got) != 0 {
		t.Errorf("without a tag: %v, %v", got, err)
	}
}
