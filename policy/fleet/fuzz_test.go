package fleet

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/natsid/natsid/policy"
)

// FuzzSetting guards the limits: what others wrote is refused, or it limits, and a change keeps what it does not know.
func FuzzSetting(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"max_batch":5,"rate":100}`, `{"rate":-1}`, `{"max_batch":-1}`, `{"rate":1e3}`,
		`{"all":7,"tags":{"order":5,"a/b":9}}`, `{"tags":{"order":-5}}`, `{"all":-1}`, `{"tags":null,"later":{"x":1}}`,
		`{"rate":9223372036854775807}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		limit, limitErr := decodeLimit(value)
		throttle, throttleErr := decodeThrottle(value)
		if limitErr != nil || throttleErr != nil {
			return
		}
		lowest := min(limit.Rate, int64(limit.MaxBatch), throttle.All)
		for _, rate := range throttle.Tags {
			lowest = min(lowest, rate)
		}
		if lowest < 0 { // a rate below 0 pays debts at once
			t.Fatalf("%q reads as %+v and %+v", value, limit, throttle)
		}
		var g policy.Gate
		g.Set(policy.Rules{Limits: map[string]policy.Limit{"order": limit}, Throttle: throttle})
		if limit.Rate > 0 && limit.Rate < 1000 {
			given := 0
			for range 3000 {
				if g.Admit("order", 1, time.Second) == nil {
					given++
				}
			}
			if int64(given) > limit.Rate+1 {
				t.Fatalf("%q gives %d at once", value, given)
			}
		}
		merged, err := merge(value, limit, "max_batch", "rate")
		if err != nil || !json.Valid(merged) {
			t.Fatalf("%q becomes %q, %v", value, merged, err)
		}
		if back, err := decodeLimit(merged); err != nil || back != limit {
			t.Fatalf("%q becomes %q, which reads as %+v", value, merged, back)
		}
	})
}
