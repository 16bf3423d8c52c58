package workerid

import (
	"bytes"
	"testing"
)

// FuzzDecodeState guards the fence: a state that decodeState accepts was written whole by a worker. A file that is cut
// short, or in which any bit differs, is refused.
func FuzzDecodeState(f *testing.F) {
	number := 7
	full := state{
		Instance: "a", Number: &number, Deployment: Deployment{ID: "D", Layout: "41/10/12", Unit: 1},
		Claim:    &stateClaim{Token: "T", Until: 2_000, Fence: 1_500, Clock: 1_400},
		Released: &released{Token: "T", Free: 900}, Place: place{Host: "h", Machine: "m", Inode: 9},
	}
	f.Add(full.encode())
	f.Add(append(full.encode(), full.encode()...))
	f.Add(state{Instance: "a"}.encode())
	for _, c := range []stateClaim{
		{Until: 99, Fence: 9, Clock: 5}, {Token: "t", Until: 99, Clock: 5}, {Token: "t", Until: 99, Fence: 9},
		{Token: "t", Fence: 9, Clock: 5},
	} {
		f.Add(state{Instance: "a", Number: &number, Claim: &c}.encode())
	}
	f.Add(state{Instance: "a", Claim: full.Claim}.encode())
	for _, text := range []string{"", "{}", "null", "[]", `{"v":99}`, `{"v":1,"instance":"a"}`, `{"instance":"a"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st, err := decodeState(data)
		if err != nil {
			return
		}
		if c := st.Claim; c != nil && (st.Number == nil || c.Token == "" || c.Fence <= 0 || c.Clock <= 0 ||
			c.Until <= 0 || c.Until > maxTime) {
			t.Fatalf("decodeState(%q) believes the claim %+v", data, *c)
		}
		refused := func(other []byte) {
			if st, err := decodeState(other); err == nil {
				t.Fatalf("decodeState(%q) believes %+v, written was %q", other, st, data)
			}
		}
		for n := range data {
			refused(data[:n])
			for bit := range 8 {
				damaged := bytes.Clone(data)
				damaged[n] ^= 1 << bit
				refused(damaged)
			}
		}
	})
}
