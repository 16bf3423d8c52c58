package workerid

import (
	"bytes"
	"testing"
)

// FuzzDecodeState guards the fence: a state that decodeState accepts was written whole by a worker. A file in
// which any byte differs is refused.
func FuzzDecodeState(f *testing.F) {
	number := 7
	full := state{
		Instance: "a", Number: &number, Deployment: Deployment{ID: "D", Layout: "41/10/12", Unit: 1},
		Claim:    &stateClaim{Token: "T", Until: 2_000, Fence: 1_500, Clock: 1_400},
		Released: &released{Token: "T", Free: 900}, Place: place{Host: "h", Machine: "m", Inode: 9},
	}
	f.Add(full.encode(), uint(100), byte('7'))
	f.Add(state{Instance: "a"}.encode(), uint(3), byte(' '))
	for _, c := range []stateClaim{
		{Until: 99, Fence: 9, Clock: 5}, {Token: "t", Until: 99, Clock: 5}, {Token: "t", Until: 99, Fence: 9},
		{Token: "t", Fence: 9, Clock: 5},
	} {
		f.Add(state{Instance: "a", Number: &number, Claim: &c}.encode(), uint(0), byte('{'))
	}
	f.Add(state{Instance: "a", Claim: full.Claim}.encode(), uint(0), byte('{'))
	for _, text := range []string{"", "{}", "null", "[]", `{"v":99}`, `{"v":1,"instance":"a"}`} {
		f.Add([]byte(text), uint(0), byte(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint, with byte) {
		st, err := decodeState(data)
		if err != nil {
			return
		}
		if c := st.Claim; c != nil && (st.Number == nil || c.Token == "" || c.Fence <= 0 || c.Clock <= 0 ||
			c.Until <= 0 || c.Until > maxTime) {
			t.Fatalf("decodeState(%q) believes the claim %+v", data, *c)
		}
		damaged := bytes.Clone(data)
		damaged[at%uint(len(damaged))] = with
		if other, err := decodeState(damaged); err == nil && !bytes.Equal(damaged, data) {
			t.Fatalf("decodeState(%q) believes %+v, written was %q", damaged, other, data)
		}
	})
}
