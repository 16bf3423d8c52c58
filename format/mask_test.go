package format_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

// k1 is a key that is always the same, for the tag so.
func k1() format.Option {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	return format.Keys("so", map[string][]byte{"k1": key, "k0": bytes.Repeat([]byte{1}, 32)})
}

// The texts stand here so that those of today stay readable.
func TestAMaskedIDIsWrittenAndReadBack(t *testing.T) {
	for _, tc := range []struct {
		format string
		id     subjects.ID
		want   string
	}{
		{"SO-{mask:k1:9}", 42, "SO-091337155"},
		{"SO-{mask:k1:9}", 43, "SO-554896277"},
		{"SO-{mask:k0:9}", 43, "SO-709765072"},
		{"{mask:k1:9}{check}", 999_999_999, "4123579405"},
		{"7{mask:k1:18}7", 0, "79531834809255830067"},
		{"SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", 20261125_00000042, "SO-20261125-97663806-1"},
		{"SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", 20261126_00000042, "SO-20261126-12345204-9"},
		{"{mask:k1:6}/{date:MM.yy}", 202611_0000000001, "884113/11.26"},
		{"{date:yyyy}{mask:k1:12}", 2026_999999999999, "2026548973857275"},
	} {
		f := parse(t, tc.format, k1())
		text, err := f.Format(tc.id)
		if text != tc.want || err != nil {
			t.Errorf("%s of %d: got %q, %v, want %q", tc.format, tc.id, text, err, tc.want)
		}
		if id, err := f.Read(text); id != tc.id || err != nil {
			t.Errorf("%s of %q: got %d, %v, want %d", tc.format, text, id, err, tc.id)
		}
	}
	if text, err := parse(t, "{mask:k1:6}", k1()).Format(1_000_000); err == nil {
		t.Errorf("above the mask: %s", text)
	}
}

func TestAMaskIsRefusedWithPlaceAndReason(t *testing.T) {
	for _, tc := range []struct {
		format string
		opts   []format.Option
		want   string
	}{
		{"{mask:k1:5}", nil, "byte 0 of \"{mask:k1:5}\": want {id}"},
		{"{mask:k1:19}", nil, "byte 0 of"},
		{"{date:yyyyMMdd}{mask:k1:9}", nil, "byte 15 of \"{date:yyyyMMdd}{mask:k1:9}\": want a width of at most 8"},
		{"{date:yyyyMM}{mask:k1:11}", nil, "at most 10"},
		{"{mask}", nil, "byte 0 of"},
		{"{mask:k1}", nil, "byte 0 of"},
		{"{mask:K1:9}", nil, "byte 0 of"},
		{"{mask::9}", nil, "byte 0 of"},
		{"{mask:-k:9}", nil, "byte 0 of"},
		{"{mask:k1:09}", nil, "byte 0 of"},
		{"{mask:k1:9:36}", nil, "byte 0 of"},
		{"{mask:" + strings.Repeat("k", 33) + ":9}", nil, "byte 0 of"},
		{"{id}-{mask:k1:9}", nil, "a second number"},
		{"{mask:k1:9}-{mask:k1:9}", nil, "a second number"},
		{"-{mask:k1:9}", []format.Option{leaf}, "byte 1 of \"-{mask:k1:9}\": snowflakes are not masked"},
		{"-{mask:k2:9}", nil, "byte 1 of \"-{mask:k2:9}\": there is no key named k2"},
		{"{mask:k1:9}", []format.Option{format.Keys("so", map[string][]byte{"k1": make([]byte, 16)})},
			"the key k1: it has 16 bytes, want 32"},
		{"{mask:k1:9}", []format.Option{format.Keys("", map[string][]byte{"k1": make([]byte, 32)})},
			"its name is missing"},
	} {
		_, err := format.Parse(tc.format, append([]format.Option{k1()}, tc.opts...)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.format, err, tc.want)
		}
	}
}
