package fleet

import (
	"testing"

	"github.com/natsid/natsid/internal/fleet/policy"
)

// FuzzSetting guards limits that any writer of the bucket put: each is damaged, or it limits. A change keeps
// the other fields.
func FuzzSetting(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"rate":5,"max_batch":9}`, `{"rate":-5}`, `{"max_batch":-1}`, `{"rate":1e12}`,
		`{"rate":1e13}`, `{"rate":5,"colour":{"x":[1]}}`, `{"RATE":5}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var l policy.Limit
		if read(value, &l) == nil {
			var gate policy.Gate
			gate.Set(policy.Rules{"a": l})
			for n := 0; l.Rate > 0 && gate.Admit("a", 1, 0) == nil; n++ {
				if int64(n) > l.Rate {
					t.Fatalf("%q admits more than %d at once", value, l.Rate)
				}
				if n > 1000 {
					break
				}
			}
			again := policy.Limit{}
			merged, err := merge(value, l, "max_batch", "rate")
			if err == nil {
				err = read(merged, &again)
			}
			if err != nil || again != l {
				t.Fatalf("%q is %+v, and then %+v, %v", value, l, again, err)
			}
		}
	})
}
