package cli

import "testing"

func TestNumbersHaveTheirPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 tags", 1: "1 tag", 2: "2 tags"} {
		if got := numberOf(n, "tag"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
