package format_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func parse(t testing.TB, text string, opts ...format.Option) *format.Format {
	t.Helper()
	f, err := format.Parse(text, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var (
	leaf    = format.Snowflakes(snowflake.Leaf)
	article = format.Snowflakes(snowflake.Article)
)

const wrongCheck = "wrong check digit: it is not that of the other digits"

// aFlake is of 2026-11-21 22:05:50.940 UTC.
const aFlake = 2124263042718941184

func TestAnIDIsWrittenAndReadBack(t *testing.T) {
	business := subjects.ID(1)<<44 | 5<<7 | 3 // tick 2^24, 4.7 h after the epoch of snowflake.Article
	for _, tc := range []struct {
		format string
		opts   []format.Option
		id     subjects.ID
		want   string
	}{
		{"{id}", nil, 0, "0"},
		{"{id}", nil, math.MaxInt64, "9223372036854775807"},
		{"SO-{id:6}", nil, 42, "SO-000042"},
		{"SO-{id:6}", nil, 1_000_000, "SO-1000000"},
		{"{{{id}}}", nil, 7, "{7}"},
		{"a b{id}.", nil, 7, "a b7."},
		{"{id::2}", nil, math.MaxInt64, strings.Repeat("1", 63)},
		{"{id:4:16}", nil, 0xBEEF5, "BEEF5"},
		{"{id::36}", nil, math.MaxInt64, "1Y2P0IJ32E8E7"},
		{"{id::37}", nil, 36, "a"},
		{"{id::62}", nil, math.MaxInt64, "AzL8n0Y58m7"},
		{"{id:8:crockford}", nil, 1 << 20, "00010000"},
		{"{id::crockford}-{check}", nil, math.MaxInt64, "7ZZZZZZZZZZZZ-6"},
		{"{id:3}{check}", nil, 572, "5724"}, // the example of the literature
		{"SO-{date:yyyyMMdd}-{id:6}-{check}", nil, 20261125_00000042, "SO-20261125-000042-4"},
		{"{date:yyyyMMdd}{id:8}", nil, 20240229_99999999, "2024022999999999"},
		{"{id:6}/{date:dd.MM.yy}", nil, 20991231_00000001, "000001/31.12.99"},
		{"{date:yyyy-MM}-{id}", nil, 202611_0000000001, "2026-11-1"},
		{"{date:yyyy}/{id:3}", nil, 2026_999999999999, "2026/999999999999"},
		{"{date:MM}x{date:yyyy}-{id}", nil, 202611_0000000001, "11x2026-1"},
		{"{date:yyyy-MM-dd HH:mm:ss.SSS} {id}", []format.Option{leaf}, aFlake,
			"2026-11-21 22:05:50.940 2124263042718941184"},
		{"{date:yyMMdd}{id:13:crockford}{check}", []format.Option{leaf}, aFlake, "2611211TYQ5ZE3C1G00E"},
		{"{business}-{id}-{date:HH}", []format.Option{article}, business, "05-17592186045059-20"},
	} {
		f := parse(t, tc.format, tc.opts...)
		text, err := f.Format(tc.id)
		if text != tc.want || err != nil {
			t.Errorf("%s of %d: got %q, %v, want %q", tc.format, tc.id, text, err, tc.want)
			continue
		}
		if id, err := f.Read(text); id != tc.id || err != nil {
			t.Errorf("%s of %q: got %d, %v, want %d", tc.format, text, id, err, tc.id)
		}
		if f.String() != tc.format {
			t.Errorf("got %q, want %q", f, tc.format)
		}
	}
}

func TestAnIDThatAFormatCannotWriteIsRefused(t *testing.T) {
	far := format.Snowflakes(snowflake.Layout{Time: 50, Worker: 1, Sequence: 1, Unit: 1})
	for _, tc := range []struct {
		format string
		opts   []format.Option
		id     subjects.ID
		want   string
	}{
		{"{id}", nil, -1, "the number is -1"},
		{"{date:yyyyMMdd}{id:6}", nil, 20261125_01000000, "the number is 1000000, want 0 to 999999"},
		{"{date:yyyyMMdd}-{id:6}", nil, 42, "there is no day 0"},
		{"{date:yyyyMMdd}-{id:6}", nil, -20261125_00000000, "there is no day -20261125"},
		{"{date:yyyyMMdd}-{id:6}", nil, 20260230_00000001, "there is no day 20260230"},
		{"{date:yyyyMM}-{id:6}", nil, 202613_0000000001, "there is no month 202613"},
		{"{date:yyyyMM}-{id:6}", nil, 202600_0000000001, "there is no month 202600"},
		{"{date:yyyy}-{id:6}", nil, 9007_000000000001, "there is no year 9007"},
		{"{date:yyyy}-{id:6}", nil, math.MaxInt64, "there is no year 9223372"},
		{"{date:yy}-{id:6}", nil, 2100_000000000001, "the year is 2100, want 2000 to 2099"},
		{"{date:yy}-{id:6}", nil, 1999_000000000001, "the year is 1999, want 2000 to 2099"},
		{"{id}", []format.Option{format.Snowflakes(snowflake.JS53)}, 1 << 53, "not an ID of layout 41+6+6"},
		{"{date:yyyy}-{id}", []format.Option{far}, 1<<52 - 1, "the year is 37648, want 0 to 9999"},
	} {
		got, err := parse(t, tc.format, tc.opts...).Format(tc.id)
		if !errors.Is(err, format.ErrRange) || !strings.Contains(err.Error(), tc.want) || got != "" {
			t.Errorf("%s of %d: got %q, %v, want %q", tc.format, tc.id, got, err, tc.want)
		}
	}
}

func TestAFormatIsRefusedWithPlaceAndReason(t *testing.T) {
	for _, tc := range []struct {
		format string
		opts   []format.Option
		want   string
	}{
		{"", nil, "byte 0 of \"\": want an {id}"},
		{"SO-", nil, "byte 3 of \"SO-\": want an {id}"},
		{"SO-{id", nil, "byte 3 of"},
		{"SO-}{id}", nil, "byte 3 of"},
		{"{{id}", nil, "byte 4 of"},
		{"{id:0}", nil, "byte 0 of"},
		{"{id:06}", nil, "byte 0 of"},
		{"{id:}", nil, "byte 0 of"},
		{"{id:6:}", nil, "byte 0 of"},
		{"{id::1}", nil, "byte 0 of"},
		{"{id::63}", nil, "byte 0 of"},
		{"{id::Crockford}", nil, "byte 0 of"},
		{"{id:6:10:x}", nil, "byte 0 of"},
		{"{ID}", nil, "byte 0 of"},
		{"{id}-{mask:k1}", nil, "byte 5 of"},
		{"{id}-{check:1}", nil, "byte 5 of"},
		{"{id}-{business:1}", []format.Option{article}, "byte 5 of"},
		{"{date}-{id}", nil, "byte 0 of"},
		{"{date:}-{id}", nil, "byte 0 of"},
		{"{date:yyy}-{id}", nil, "byte 0 of"},
		{"{date:yyyyTMM}-{id}", nil, "byte 0 of"},
		{"{date:yyyy{MM}-{id}", nil, "byte 0 of"},
		{"\u041e-{id}", nil, "byte 0 of \"\\u041e-{id}\": want"},
		{"{id}\x00", nil, "byte 4 of"},
		{"{id}\xff", nil, "byte 4 of \"{id}\\xff\": want"},
		{"{id}-{date:yyyy\u5e74}", nil, "byte 5 of"},
		{" {id}", nil, "byte 0 of \" {id}\": want no space at the start"},
		{"{id}- ", nil, "byte 6 of \"{id}- \": want no space at the end"},
		{"{id}-{date:yyyy }", nil, "want no space at the end"},
		{strings.Repeat("x", 125) + "{id}", nil, "129 bytes, want at most 128"},

		{"{id}{id:3}", nil, "byte 4 of \"{id}{id:3}\": a second number"},
		{"{date:yyyyMMyyyy}-{id}", nil, "byte 0 of"},
		{"{date:yyyy}{date:yy}-{id}", nil, "byte 11 of \"{date:yyyy}{date:yy}-{id}\": a second year"},
		{"{id}-{check}{check}", nil, "byte 12 of \"{id}-{check}{check}\": a second check digit"},
		{"{check}-{id}", nil, "byte 0 of \"{check}-{id}\": want {check} behind an {id}"},
		{"{id}-{check}-{date:yyyy}", nil, "byte 13 of \"{id}-{check}-{date:yyyy}\": want {check} behind all"},
		{"{id::16}-{check}", nil, "byte 9 of \"{id::16}-{check}\": want {check} behind an {id} in decimals"},
		{"{date:MM}-{id}", nil, "byte 0 of \"{date:MM}-{id}\": want the year, too"},
		{"{date:yyyy}-{date:dd}-{id}", nil, "byte 12 of \"{date:yyyy}-{date:dd}-{id}\": want the month, too"},
		{"{date:yyyyMMdd HH}-{id}", nil, "byte 0 of \"{date:yyyyMMdd HH}-{id}\": these IDs have no hour"},
		{"{id}-{business}", nil, "byte 5 of \"{id}-{business}\": these IDs have no business"},
		{"{id}-{business}", []format.Option{leaf}, "byte 5 of \"{id}-{business}\": these IDs have no business"},

		{"7{id}", nil, "byte 1 of \"7{id}\": ambiguous without a width"},
		{"{id}7", nil, "byte 0 of \"{id}7\": ambiguous without a width"},
		{"A{id::16}", nil, "byte 1 of \"A{id::16}\": ambiguous without a width"},
		{"SO{id::36}", nil, "byte 2 of"},
		{"so{id::62}", nil, "byte 2 of"},
		{"o{id::crockford}", nil, "byte 1 of"},
		{"{id::crockford}i", nil, "byte 0 of"},
		{"{id}{check}", nil, "byte 0 of \"{id}{check}\": ambiguous without a width"},
		{"{date:yyyyMMdd}{id}", nil, "byte 15 of"},
		{"{id}{date:yyyyMMdd}", nil, "byte 0 of"},
		{"{business}{id:3}", []format.Option{article}, "byte 10 of \"{business}{id:3}\": ambiguous: what is " +
			"beside it could be its digit, and snowflakes need a width of 18"},
		{"{id:20}", nil, "byte 0 of \"{id:20}\": want a width of at most 19"},
		{"{date:yyyyMMdd}-{id:9}", nil, "byte 16 of \"{date:yyyyMMdd}-{id:9}\": want a width of at most 8"},
	} {
		f, err := format.Parse(tc.format, tc.opts...)
		if f != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.format, err, tc.want)
		}
	}
}

func TestATextIsRefusedWithPlaceAndReason(t *testing.T) {
	daily := "SO-{date:yyyyMMdd}-{id:6}-{check}"
	for _, tc := range []struct {
		format string
		opts   []format.Option
		text   string
		at     int
		reason string
	}{
		{daily, nil, "", 0, `want "SO-"`},
		{daily, nil, "RE-20261125-000042-4", 0, `want "SO-"`}, // of another tag
		{daily, nil, "so-20261125-000042-4", 0, `want "SO-"`},
		{daily, nil, "SO-2026112", 10, "want the day in 2 digits"},
		{daily, nil, "SO-2026-11-25-000042-4", 7, "want the month in 2 digits"},
		{daily, nil, "SO-20261125", 11, `want "-"`},
		{daily, nil, "SO-20261125-00042-4", 17, "want the number in 6 digits"},
		{daily, nil, "SO-20261125-0000042-4", 12, "a zero too many: the number has at least 6 digits"},
		{daily, nil, "SO-20261125-100000000-4", 12, "the number is above 99999999"},
		{daily, nil, "SO-20261125-00O042-4", 14, "want the number in 6 digits"},
		{daily, nil, "SO-20261125-000042-", 19, "want the check digit in 1 digits"},
		{daily, nil, "SO-20261125-000042-x", 19, "want the check digit in 1 digits"},
		{daily, nil, "SO-20261125-000042-7", 19, wrongCheck},
		{daily, nil, "SO-20261125-000024-4", 19, wrongCheck},
		{daily, nil, "SO-20261125-000042-4 ", 20, "want the end of the text"},
		{daily, nil, "SO-20260230-000042-4", 9, "there is no day 20260230"},
		{daily, nil, "SO-20261325-000042-4", 9, "there is no day 20261325"},
		{daily, nil, "SO-00001125-000042-4", 9, "there is no day 1125"},
		{daily, nil, "SO-90070101-000042-4", 9, "there is no day 90070101"},
		{"{date:yyyy.MM}/{id}", nil, "2026.13/5", 5, "there is no month 202613"},
		{"{id}", nil, "", 0, "want the number in 1 digits"},
		{"{id}", nil, "-1", 0, "want the number in 1 digits"},
		{"{id}", nil, "042", 0, "a zero too many: the number has at least 1 digits"},
		{"{id}", nil, "00", 0, "a zero too many: the number has at least 1 digits"},
		{"{id}", nil, "9223372036854775808", 0, "the number is above 9223372036854775807"},
		{"{id}", nil, strings.Repeat("9", 1000), 0, "the number is above 9223372036854775807"},
		{"{id}", nil, "4\u0662", 1, "want the end of the text"},
		{"7{id:3}7", nil, "710007", 4, `want "7"`},
		{"{id::16}", nil, "beef", 0, "want the number in 1 digits"},
		{"{id::crockford}", nil, "1o", 1, "want the end of the text"},
		{"{id::crockford}", []format.Option{format.Lenient()}, "1u", 1, "want the end of the text"},
		{"{id::crockford}-{check}", nil, "12-4", 3, wrongCheck},
		{"{id:2:36}", []format.Option{format.Lenient()}, "ab", 0, "want the number in 2 digits"},
		{"{id}", []format.Option{format.Snowflakes(snowflake.JS53)}, "9007199254740992", 0,
			"the number is above 9007199254740991"},
		{"{date:yyyyMMdd} {id}", []format.Option{leaf}, "20261122 2124263042718941184", 6,
			"wrong day: it is not that of the other digits"},
		{"{date:yy-MM-dd} {id}", []format.Option{leaf}, "25-11-21 2124263042718941184", 0,
			"wrong year: it is not that of the other digits"},
		{"{id} {date:HH:mm}", []format.Option{leaf}, "2124263042718941184 22:06", 23,
			"wrong minute: it is not that of the other digits"},
		{"{business}.{id}", []format.Option{article}, "06.17592186045059", 0,
			"wrong business: it is not that of the other digits"},
	} {
		_, err := parse(t, tc.format, tc.opts...).Read(tc.text)
		want := format.ReadError{At: tc.at, Reason: tc.reason}
		if got, ok := errors.AsType[*format.ReadError](err); !ok || *got != want {
			t.Errorf("%s of %q: got %v, want %v", tc.format, tc.text, err, &want)
		}
	}
}

func TestLenientReadsWhatPeopleMistake(t *testing.T) {
	f := parse(t, "T-{id:4:crockford}-{check}", format.Lenient())
	strict := parse(t, "T-{id:4:crockford}-{check}")
	text, err := strict.Format(1<<5 | 31<<10)
	if err != nil || text != "T-0Z10-7" {
		t.Fatal(text, err)
	}
	for _, typed := range []string{text, "T-0z10-7", "T-oZ1o-7", "T-OziO-7", "T-0zL0-7", "T-0zl0-7", "T-0ZI0-7"} {
		if id, err := f.Read(typed); err != nil || id != 1<<5|31<<10 {
			t.Errorf("%s: got %d, %v", typed, id, err)
		}
		if _, err := strict.Read(typed); (err == nil) != (typed == text) {
			t.Errorf("%s: strictly, got %v", typed, err)
		}
	}
	if _, err := f.Read("t-0Z10-7"); err == nil {
		t.Error("literal text is lenient, too")
	}
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	one := parse(t, "{id:1:crockford}", format.Lenient())
	for c := range 256 {
		want := strings.IndexByte(digits, strings.NewReplacer("O", "0", "I", "1", "L", "1").Replace(
			strings.ToUpper(string([]byte{byte(c)})))[0])
		if got, err := one.Read(string([]byte{byte(c)})); c < 128 && (err == nil) != (want >= 0) ||
			err == nil && got != subjects.ID(want) {
			t.Errorf("%q: got %d, %v, want %d", rune(c), got, err, want)
		}
	}
}

func TestMaxIsTheHighestNumber(t *testing.T) {
	key := k1()
	for _, tc := range []struct {
		format string
		opts   []format.Option
		max    subjects.ID
	}{
		{"{id}", nil, math.MaxInt64},
		{"SO-{id:6}", nil, math.MaxInt64},
		{"{mask:k1:6}", []format.Option{key}, 999_999},
		{"{mask:k1:18}", []format.Option{key}, 999_999_999_999_999_999},
		{"{date:yyyyMMdd}{mask:k1:8}", []format.Option{key}, 99_999_999},
		{"SO7{id:6}", nil, 999_999},
		{"{id:6}{check}", nil, 999_999},
		{"SO{id:6:36}", nil, 36*36*36*36*36*36 - 1},
		{"so{id:6:36}", nil, math.MaxInt64},
		{"7{id:13:36}", nil, math.MaxInt64},
		{"l{id:2:crockford}", nil, 1023},
		{"{date:yyyyMMdd}-{id:6}", nil, 99_999_999},
		{"{date:yyyyMMdd}{id:6}", nil, 999_999},
		{"{date:yyyyMMdd}{id:8}", nil, 99_999_999},
		{"{id}/{date:MM.yy}", nil, 9_999_999_999},
		{"{date:yyyy}-{id:6}-{check}", nil, 999_999_999_999},
		{"{date:yyyyMMdd}-{id}", []format.Option{leaf}, math.MaxInt64},
		{"{id}", []format.Option{format.Snowflakes(snowflake.JS53)}, 1<<53 - 1},
		{"{date:yyyy}{id:16}", []format.Option{format.Snowflakes(snowflake.JS53)}, 1<<53 - 1},
	} {
		f := parse(t, tc.format, tc.opts...)
		if f.Max() != tc.max {
			t.Errorf("%s: got %d, want %d", tc.format, f.Max(), tc.max)
		}
	}
}
