package format_test

import (
	"testing"

	"github.com/natsid/natsid/subjects"
)

// TestReadFindsEachMistake plays every mistake of one character, and of two neighbours, in some texts. That no other
// text has one follows from [TestQuasigroupsAreTotallyAntiSymmetric].
func TestReadFindsEachMistake(t *testing.T) {
	for _, tc := range []struct{ spec, digits string }{
		{"{id:6}{check}", "0123456789"},
		{"{id:6:crockford}{check}", "0123456789ABCDEFGHJKMNPQRSTVWXYZ"},
	} {
		f := parse(t, tc.spec)
		for n := subjects.ID(0); n < 1_000_000; n += 7919 {
			text, err := f.Format(n)
			if err != nil {
				t.Fatal(err)
			}
			for i := range text {
				for _, c := range []byte(tc.digits) {
					other := []byte(text)
					other[i] = c
					if id, err := f.Read(string(other)); (err == nil) != (c == text[i]) {
						t.Fatalf("%s for %s: got %d, %v", other, text, id, err)
					}
				}
				if i > 0 && text[i] != text[i-1] {
					other := []byte(text)
					other[i], other[i-1] = text[i-1], text[i]
					if id, err := f.Read(string(other)); err == nil {
						t.Fatalf("%s for %s: got %d", other, text, id)
					}
				}
			}
		}
	}
}
