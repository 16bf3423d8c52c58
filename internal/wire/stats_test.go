package wire_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/natsid/natsid/internal/wire"
)

func TestAFractionIsShortAndATimeWithoutEndIsNull(t *testing.T) {
	for f, want := range map[wire.Fraction]string{
		0: "0", 12.3456: "12.346", 1e9: "1000000000", 0.0004: "0", 3: "3", wire.Fraction(math.Inf(1)): "null",
	} {
		got, err := json.Marshal(f)
		if err != nil || string(got) != want {
			t.Errorf("%v is %s, %v, want %s", float64(f), got, err, want)
		}
		var back wire.Fraction
		if err := json.Unmarshal(got, &back); err != nil || math.Abs(float64(back-f)) > 0.001 {
			t.Errorf("%s is read as %v, %v", got, float64(back), err)
		}
	}
	var f wire.Fraction
	if err := json.Unmarshal([]byte(`"x"`), &f); err == nil {
		t.Errorf("a word is read as %v", float64(f))
	}
}

func TestIDsInStatisticsAreStrings(t *testing.T) {
	got, err := json.Marshal(wire.TagRange{First: 1, Next: 1<<53 + 1, Last: math.MaxInt64, Current: true})
	const want = `{"first":"1","next":"9007199254740993","last":"9223372036854775807","current":true}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
