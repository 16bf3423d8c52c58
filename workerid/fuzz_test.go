package workerid

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzDecodeState guards the fence: what decodeState believes, a worker wrote, whole. A file of this version in which
// any byte differs is refused, or says the same.
func FuzzDecodeState(f *testing.F) {
	number := 7
	full := state{
		Instance: "a", Number: &number, Deployment: Deployment{ID: "D", Layout: "41/10/12", Unit: 1},
		Claim:    &stateClaim{Token: "T-1", Revision: 3, Until: 2_000, Fence: 1_500, Clock: 1_400},
		Released: &released{Base: "T", Writes: 2, Free: 900}, Place: place{Host: "h", Machine: "m", Inode: 9},
	}
	f.Add(full.encode(), uint(100), byte('7'))
	f.Add(state{Instance: "a"}.encode(), uint(3), byte(' '))
	for _, text := range []string{
		"", "{}", "null", "[]", `{"v":99}`, `{"v":0,"claim":{"token":"x","until":1,"fence":9223372036854775807}}`,
		`{"number":7,"claim":{"token":"T","revision":1,"until":5,"fence":4}}{}`, `{"instance":"a","what":1}`,
	} {
		f.Add([]byte(text), uint(0), byte(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint, with byte) {
		st, err := decodeState(data)
		if err != nil {
			return
		}
		if c := st.Claim; c != nil && (st.Number == nil || c.Fence <= 0 || c.Until <= 0 || c.Until > maxTime) {
			t.Fatalf("decodeState(%q) believes the claim %+v", data, *c)
		}
		whole := st.encode()
		back, err := decodeState(whole)
		if err != nil {
			t.Fatalf("decodeState(%q) wrote %q, and does not read it: %v", data, whole, err)
		}
		damaged := bytes.Clone(whole)
		damaged[at%uint(len(damaged))] = with
		if other, err := decodeState(damaged); err == nil && !reflect.DeepEqual(other, back) && other.Sum != "" {
			t.Fatalf("decodeState(%q) believes %+v, written was %+v", damaged, other, back)
		}
	})
}
