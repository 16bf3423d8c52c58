package format_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/natsid/natsid/format"
)

// k1 is a key that is always the same.
func k1(t testing.TB) format.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k1.key")
	line := "natsid-mask-key-1 k1 dd630a267d515202 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	k, warning, err := format.ReadKeyFile(path)
	if err != nil || warning != "" {
		t.Fatal(warning, err)
	}
	return k
}

func newKey(t testing.TB, name string) format.Key {
	t.Helper()
	k, err := format.NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The texts stand here so that those of today stay readable. They were computed by another program, in another
// language, from the formulas in the package comments of mask and format.
func TestAMaskedIDIsWrittenAndReadBack(t *testing.T) {
	keys := format.Keys(newKey(t, "k0"), k1(t))
	for _, tc := range []struct {
		format string
		id     int64
		want   string
	}{
		{"SO-{mask:k1:9}", 42, "SO-668888548"},
		{"SO-{mask:k1:9}", 43, "SO-386554444"},
		{"7{mask:k1:8:crockford}7", 0, "7W2ENMNR87"},
		{"{mask:k1:9}{check}", 999_999_999, "7340305787"},
		{"{mask:k1:63:2}", math.MaxInt64, "000001010001101100001001011111000001100010111010111101110001000"},
		{"SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", 20261125_00000042, "SO-20261125-00773025-8"},
		{"SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", 20261126_00000042, "SO-20261126-05132523-0"},
		{"{mask:k1:4:crockford}/{date:MM.yy}", 202611_0000000001, "3MHM/11.26"},
		{"{date:yyyy}{mask:k1:12}", 2026_999999999999, "2026739798545213"},
	} {
		f := parse(t, tc.format, keys)
		text, err := f.Format(tc.id)
		if text != tc.want || err != nil {
			t.Errorf("%s of %d: got %q, %v, want %q", tc.format, tc.id, text, err, tc.want)
		}
		if id, err := f.Read(text); id != tc.id || err != nil {
			t.Errorf("%s of %q: got %d, %v, want %d", tc.format, text, id, err, tc.id)
		}
	}
}

func TestTextsOfAMaskHaveOneWidthAndShowNoOrder(t *testing.T) {
	f := parse(t, "{mask:k1:7}", format.Keys(k1(t)))
	seen, rises, last := map[string]bool{}, 0, ""
	for id := range int64(10_000) {
		text, err := f.Format(id)
		if err != nil || len(text) != 7 || seen[text] {
			t.Fatalf("%d: %q, %v", id, text, err)
		}
		if back, err := f.Read(text); back != id || err != nil {
			t.Fatalf("%q: %d, %v, want %d", text, back, err, id)
		}
		if seen[text] = true; text > last {
			rises++
		}
		last = text
	}
	if rises < 4700 || rises > 5300 { // 10 standard deviations
		t.Errorf("%d of 10000 texts are above the one before", rises)
	}
	if _, err := f.Format(1e7); !errors.Is(err, format.ErrRange) {
		t.Error(err)
	}
}

func TestEqualNumbersOfTwoPeriodsAreUnrelated(t *testing.T) {
	key := format.Keys(k1(t))
	for _, tc := range []struct {
		text string
		days [2]int64
	}{
		{"{mask:k1:8}{date:yyyyMMdd}", [2]int64{20261125_00000000, 20261126_00000000}},
		{"{mask:k1:8}{date:yyyyMM}", [2]int64{202611_0000000000, 202612_0000000000}},
		{"{mask:k1:8}{date:yyyy}", [2]int64{2026_000000000000, 2027_000000000000}},
	} {
		f, equal := parse(t, tc.text, key), 0
		for n := range int64(1000) {
			a, _ := f.Format(tc.days[0] + n)
			b, err := f.Format(tc.days[1] + n)
			if err != nil {
				t.Fatal(err)
			}
			if a[:3] == b[:3] {
				equal++
			}
			if id, err := f.Read(a); id != tc.days[0]+n || err != nil {
				t.Fatalf("%s: %d, %v", a, id, err)
			}
		}
		if equal > 15 { // 1 is expected
			t.Errorf("%s: %d of 1000 equal numbers begin alike", tc.text, equal)
		}
	}
}

func TestCallersOnTwoDaysDoNotDisturbOneAnother(t *testing.T) {
	f := parse(t, "{date:yyyyMMdd}{mask:k1:8}", format.Keys(k1(t)))
	var all sync.WaitGroup
	for day := range int64(4) {
		all.Go(func() {
			for n := range int64(500) {
				id := 20261101_00000000 + (day+n%2)*1e8 + n
				text, err := f.Format(id)
				if back, no := f.Read(text); err != nil || no != nil || back != id {
					t.Errorf("%d: %q, read as %d: %v, %v", id, text, back, err, no)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestWithoutItsKeyAMaskIsParsedAndNothingElse(t *testing.T) {
	other := format.Keys(newKey(t, "k2"))
	for _, opts := range [][]format.Option{nil, {other}} {
		f := parse(t, "SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", opts...)
		if f.Period() != format.Day || f.Max() != 99_999_999 {
			t.Errorf("%v, %d", f.Period(), f.Max())
		}
		text, formatted := f.Format(20261125_00000042)
		dst, appended := f.Append([]byte("before"), 20261125_00000042)
		id, read := f.Read("SO-20261125-12345678-0")
		for _, err := range []error{formatted, appended, read, f.CheckKey()} {
			if !errors.Is(err, format.ErrNoKey) || !strings.Contains(err.Error(), "named k1") {
				t.Errorf("%v, want ErrNoKey with the name", err)
			}
		}
		if text != "" || string(dst) != "before" || id != 0 || !strings.Contains(read.Error(), "byte 12") {
			t.Errorf("%q, %q, %d: %v", text, dst, id, read)
		}
		if _, err := f.Read("SO-20261125-1234567"); errors.Is(err, format.ErrNoKey) || err == nil {
			t.Errorf("what is no text with any key: %v", err)
		}
	}
	if err := parse(t, "{mask:k1:9}", format.Keys(k1(t)), other).CheckKey(); err != nil {
		t.Error(err)
	}
	if err := parse(t, "{id}").CheckKey(); err != nil {
		t.Error(err)
	}
}

// Each text has a check digit, so that 1 of 10 or of 32 other keys fits by chance.
func TestAnotherKeyOfThatNameIsMostlyRefused(t *testing.T) {
	for text, want := range map[string]int{"{mask:k1:9}-{check}": 150, "{mask:k1:8:crockford}{check}": 175} {
		written, err := parse(t, text, format.Keys(k1(t))).Format(42)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for range 200 {
			if _, err := parse(t, text, format.Keys(newKey(t, "k1"))).Read(written); err != nil {
				refused++
			}
		}
		if refused < want {
			t.Errorf("%s: %d of 200 other keys are refused, want %d", text, refused, want)
		}
	}
}

func TestTheCheckDigitOfAMaskFindsMistakes(t *testing.T) {
	for range 20 {
		f := parse(t, "{mask:k:7}{check}", format.Keys(newKey(t, "k")))
		text, err := f.Format(42)
		if err != nil {
			t.Fatal(err)
		}
		for i := range text {
			for c := '0'; c <= '9'; c++ {
				if wrong := text[:i] + string(c) + text[i+1:]; wrong != text {
					if _, err := f.Read(wrong); err == nil {
						t.Errorf("%s is read for %s", wrong, text)
					}
				}
			}
			if i > 0 && text[i] != text[i-1] {
				if _, err := f.Read(text[:i-1] + text[i:i+1] + text[i-1:i] + text[i+1:]); err == nil {
					t.Errorf("%s is read with %d and %d swapped", text, i-1, i)
				}
			}
		}
	}
}

func TestAMaskIsRefusedWithPlaceAndReason(t *testing.T) {
	key := k1(t)
	for _, tc := range []struct {
		format string
		opts   []format.Option
		want   string // "" for a format
		max    int64
	}{
		{"-{mask:k1:6}", nil, "byte 1 of \"-{mask:k1:6}\": want a width with at least 1048576 numbers", 0},
		{"{mask:k1:7}", nil, "", 9_999_999},
		{"{mask:k1:18}", nil, "", 999_999_999_999_999_999},
		{"{mask:k1:19}", nil, "want a width with at most 9223372036854775808 numbers", 0},
		{"{mask:k1:99:62}", nil, "want a width with at most 9223372036854775808 numbers", 0},
		{"{mask:k1:19:2}", nil, "at least 1048576", 0},
		{"{mask:k1:20:2}", nil, "", 1<<20 - 1},
		{"{mask:k1:63:2}", nil, "", math.MaxInt64},
		{"{mask:k1:64:2}", nil, "at most 9223372036854775808", 0},
		{"{mask:k1:3:crockford}", nil, "at least 1048576", 0},
		{"{mask:k1:4:crockford}", nil, "", 1<<20 - 1},
		{"{mask:k1:12:crockford}", nil, "", 1<<60 - 1},
		{"{mask:k1:13:crockford}", nil, "at most 9223372036854775808", 0},
		{"{date:yyyyMMdd}{mask:k1:8}", nil, "", 99_999_999},
		{"{date:yyyyMMdd}{mask:k1:9}", nil, "byte 15 of \"{date:yyyyMMdd}{mask:k1:9}\": want a width with " +
			"at most 100000000 numbers", 0},
		{"{date:yyyyMM}{mask:k1:11}", nil, "at most 10000000000", 0},
		{"{date:yyyy}{mask:k1:12}", nil, "", 999_999_999_999},
		{"{mask}", nil, "byte 0 of", 0},
		{"{mask:k1}", nil, "byte 0 of \"{mask:k1}\": want {id}", 0},
		{"{mask:K1:9}", nil, "byte 0 of", 0},
		{"{mask::9}", nil, "byte 0 of", 0},
		{"{mask:-k:9}", nil, "byte 0 of", 0},
		{"{mask:k1:09}", nil, "byte 0 of", 0},
		{"{mask:k1::36}", nil, "byte 0 of", 0},
		{"{mask:k1:9:1}", nil, "byte 0 of", 0},
		{"{mask:" + strings.Repeat("k", 33) + ":9}", nil, "byte 0 of", 0},
		{"{id}-{mask:k1:9}", nil, "a second number", 0},
		{"{mask:k1:9}-{mask:k2:9}", nil, "a second number", 0},
		{"{mask:k1:9:36}{check}", nil,
			"byte 14 of \"{mask:k1:9:36}{check}\": want {check} behind an {id} in decimals", 0},
		{"-{mask:k1:9}", []format.Option{leaf}, "byte 1 of \"-{mask:k1:9}\": snowflakes are not masked", 0},
		{"{mask:k1:9}", []format.Option{format.Keys(key, key)}, "", 999_999_999},
		{"-{mask:k1:9}", []format.Option{format.Keys(key, newKey(t, "k1"))},
			"byte 1 of \"-{mask:k1:9}\": two different keys are named k1", 0},
	} {
		f, err := format.Parse(tc.format, tc.opts...)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.format, err, tc.want)
		} else if err == nil && f.Max() != tc.max {
			t.Errorf("%s: up to %d, want %d", tc.format, f.Max(), tc.max)
		}
	}
	if _, err := format.NewKey("K 1"); err == nil {
		t.Error("a key has a name that no format can have")
	}
	if _, _, err := format.ReadKeyFile(t.TempDir()); err == nil {
		t.Error("a folder is a key")
	}
}
