package format_test

import (
	"fmt"
	"testing"
)

// checks returns the check characters of all numbers of a width, and the digits of the radix.
func checks(t *testing.T, spec string) []byte {
	f := parse(t, spec)
	all := make([]byte, f.Max()+1)
	buf := make([]byte, 0, 16)
	for n := range f.Max() + 1 {
		text, err := f.Append(buf, n)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = text[len(text)-1]
	}
	return all
}

// TestTheCheckDigitFindsEachWrongDigitAndEachSwap plays every mistake of one character, and of two neighbours, in every
// text of a width: Read takes a text if its check digit is the one that Append writes for its number.
func TestTheCheckDigitFindsEachWrongDigitAndEachSwap(t *testing.T) {
	for _, tc := range []struct {
		spec   string
		digits string
		width  int
	}{
		{"{id:6}{check}", "0123456789", 6},
		{"{id:4:crockford}{check}", "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 4},
	} {
		if testing.Short() && tc.width == 4 {
			continue
		}
		all, radix := checks(t, tc.spec), len(tc.digits)
		wrong, swapped, missed := 0, 0, 0
		for n := range all {
			last := 0 // the digit behind the place
			for i, unit := 0, 1; i < tc.width; i, unit = i+1, unit*radix {
				digit := n / unit % radix
				for other := range radix {
					if other != digit {
						wrong++
						if all[n+(other-digit)*unit] == all[n] {
							missed++
						}
					}
				}
				switch {
				case i == 0 && tc.digits[digit] != all[n]: // with the check digit
					swapped++
					check := indexOf(tc.digits, all[n])
					if all[n-digit+check] == tc.digits[digit] {
						missed++
					}
				case i > 0 && digit != last:
					swapped++
					if all[n+(last-digit)*unit+(digit-last)*unit/radix] == all[n] {
						missed++
					}
				}
				last = digit
			}
		}
		t.Logf("%s: %d texts, %d wrong digits and %d swaps, %d missed", tc.spec, len(all), wrong, swapped, missed)
		if missed > 0 || wrong != len(all)*tc.width*(radix-1) || swapped < len(all)*tc.width*(radix-1)/radix*9/10 {
			t.Errorf("%s: %d mistakes are missed, of %d wrong digits and %d swaps", tc.spec, missed, wrong, swapped)
		}
	}
}

func indexOf(digits string, c byte) int {
	for i := range digits {
		if digits[i] == c {
			return i
		}
	}
	panic(fmt.Sprintf("%q is no digit", c))
}

// TestReadFindsEachMistake does the same with Read, for some texts, and for wrong check digits.
func TestReadFindsEachMistake(t *testing.T) {
	for _, tc := range []struct{ spec, digits string }{
		{"{id:6}{check}", "0123456789"},
		{"{id:6:crockford}{check}", "0123456789ABCDEFGHJKMNPQRSTVWXYZ"},
	} {
		f := parse(t, tc.spec)
		for n := int64(0); n < 1_000_000; n += 7919 {
			text, err := f.Append(nil, n)
			if err != nil {
				t.Fatal(err)
			}
			for i := range text {
				for _, c := range []byte(tc.digits) {
					other := append([]byte{}, text...)
					other[i] = c
					if id, err := f.Read(string(other)); (err == nil) != (c == text[i]) {
						t.Fatalf("%s for %s: got %d, %v", other, text, id, err)
					}
				}
				if i > 0 && text[i] != text[i-1] {
					other := append([]byte{}, text...)
					other[i], other[i-1] = text[i-1], text[i]
					if id, err := f.Read(string(other)); err == nil {
						t.Fatalf("%s for %s: got %d", other, text, id)
					}
				}
			}
		}
	}
}
