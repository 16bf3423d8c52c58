package kvregistry

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// FuzzEntry guards foreign entries of a number: a record that is not whole is damaged, so the number is not free,
// and a heartbeat that is not whole is one all the same.
func FuzzEntry(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", inPlace("T", 1700000000000, 1), inPlace("T", 1, 99), inPlace("T", -1, 1),
		inPlace("T", math.MaxInt64, 1), inPlace("", 1, 1), `{"token":"T","until":1,"v":1}`,
		`{"id":"D","layout":"41/10/12","epoch":1,"unit":1,"v":1}`, `{"id":"D","layout":"x","unit":0,"v":1}`,
		`{"instance":"a","time":-9223372036854775808,"since":9223372036854775807}`, `{"time":"x","instance":"a"}`,
	} {
		f.Add([]byte(text))
	}
	at := time.UnixMilli(1_700_000_000_000)
	f.Fuzz(func(t *testing.T, value []byte) {
		e := buckets.Entry{Value: value, Revision: 3, Created: at}
		if rec := record(e); rec.Revision != 3 || !rec.Damaged && rec.Valid() != nil {
			t.Fatalf("%q reads as %+v", value, rec)
		} else if back := record(buckets.Entry{Value: encodeRecord(rec), Revision: 3}); !rec.Damaged && back != rec {
			t.Fatalf("%q reads as %+v, and again as %+v", value, rec, back)
		}
		if h := heartbeat(e); h.At != at.UnixMilli() {
			t.Fatalf("%q is a heartbeat of %d", value, h.At)
		}
		if d, err := deployment(value); err == nil && (d.ID == "" || d.Layout == "" || d.Unit < 1) {
			t.Fatalf("%q reads as %+v", value, d)
		}
	})
}

// inPlace returns the text of a record whose deployment is whole.
func inPlace(token string, until int64, version int) string {
	return fmt.Sprintf(`{"token":%q,"until":%d,"deployment":{"id":"D","layout":"41/10/12","unit":1},"v":%d}`,
		token, until, version)
}

func FuzzNumber(f *testing.F) {
	for _, key := range []string{"0", "7", "07", "+7", "-7", "", "deployment", "9223372036854775808", "1.0", "٣"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if w, ok := number(key); ok && (w < 0 || strconv.Itoa(w) != key) {
			t.Fatalf("key %q is taken for that of number %d", key, w)
		}
	})
}
