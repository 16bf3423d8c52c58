package kvstore

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// FuzzEntry guards the mark: an entry is damaged, or its mark and step are positive and are written as they were read.
func FuzzEntry(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"mark":101,"step":10}`, `{"mark":0,"step":10}`, `{"mark":1,"step":-1}`,
		`{"mark":9223372036854775807,"step":9223372036854775807,"least":-5,"token":"a","first":"R"}`,
		`{"mark":7,"mark":3,"step":1}`, `{"mark":1e3,"step":1}`, `{"Mark":5,"STEP":5,"unknown":1}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := decode("b", buckets.Entry{Key: "order", Value: value})
		if err != nil {
			return
		}
		if e.Mark < 1 || e.Step < 1 {
			t.Fatalf("%q reads as %+v", value, e)
		}
		tag := e.tag("order", time.Time{})
		back := e
		back.set(tag)
		if again, err := decode("b", buckets.Entry{Value: back.encode()}); err != nil || again.Mark != e.Mark ||
			again.Least != e.Least || again.Step != e.Step || again.Disabled != e.Disabled {
			t.Fatalf("%q reads as %+v, and again as %+v, %v", value, e, again, err)
		}
	})
}

// FuzzIdentity guards which registry a bucket is believed to hold.
func FuzzIdentity(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", `{"registry":"R","kind":"kv","made":"2026-01-02T03:04:05Z","version":1}`,
		`{"registry":"R","kind":"mysql","version":2}`, `{"registry":"R","kind":"mysql","version":3}`,
		`{"registry":"","kind":"kv"}`, `{"registry":"R","kind":"x"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		id, err := era.Decode(value)
		if err == nil && (id.Registry == "" || id.Kind == "" || id.Era == "" && id.Incident == nil) {
			t.Fatalf("%q reads as %+v", value, id)
		}
		if err != nil && !errors.Is(err, era.ErrIdentity) && !errors.Is(err, era.ErrNewer) {
			t.Fatalf("%q is an identity that cannot be read, and does not say so: %v", value, err)
		}
	})
}
