package format_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

var seeds = []string{
	"{id}", "SO-{date:yyyyMMdd}-{id:6}-{check}", "{date:yyMM}.{id::36}", "A{id:6:16}", "{{{id:8:crockford}}}{check}",
	"{date:yyyy-MM-dd HH:mm:ss.SSS} {id}", "{business}.{id}", "{id}{id:3}", "{id", "{date:MM}{id}", "7{id:3}7{check}",
	"SO-{date:yyyyMMdd}-{mask:k1:8}-{check}", "{mask:k1:18}{check}", "{mask:k2:7}",
}

// options are those of a fuzzed format, which has the key k1, but not k2.
func options(kind byte) (opts []format.Option) {
	opts = append(opts, k1())
	if kind&1 != 0 {
		opts = append(opts, format.Lenient())
	}
	switch kind >> 1 % 4 {
	case 1:
		opts = append(opts, format.Snowflakes(snowflake.Leaf))
	case 2:
		opts = append(opts, format.Snowflakes(snowflake.Article))
	case 3:
		opts = append(opts, format.Snowflakes(snowflake.JS53))
	}
	return opts
}

// FuzzParse holds each format to its laws for any ID: what it writes it reads back, and up to Max it writes all.
func FuzzParse(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, byte(i), int64(20261125_00000042))
		f.Add(seed, byte(0), int64(42))
		f.Add(seed, byte(4), int64(1)<<44)
	}
	f.Fuzz(func(t *testing.T, text string, kind byte, n int64) {
		id := subjects.ID(n)
		f, err := format.Parse(text, options(kind)...)
		if err != nil {
			return
		}
		got, err := f.Format(id)
		if err != nil {
			if kind>>1%4 == 0 && !strings.Contains(text, "{date") && id >= 0 && id <= f.Max() {
				t.Errorf("%s of %d: %v", text, id, err)
			}
			return
		}
		if back, err := f.Read(got); err != nil || back != id {
			t.Errorf("%s of %d is %q, read as %d, %v", text, id, got, back, err)
		}
	})
}

// FuzzRead holds each format to its laws for any text: an ID has one text, and a ReadError a place in it.
func FuzzRead(f *testing.F) {
	for i, seed := range seeds {
		f.Add(seed, byte(i), "SO-20261125-000042-4")
		f.Add(seed, byte(0), "742")
		f.Add(seed, byte(1), "2024-02-29 10:11:12.133 17592186045059")
	}
	f.Fuzz(func(t *testing.T, text string, kind byte, typed string) {
		f, err := format.Parse(text, options(kind)...)
		if err != nil {
			return
		}
		id, err := f.Read(typed)
		if err != nil {
			if e := err.(*format.ReadError); e.At < 0 || e.At > len(typed) || e.Reason == "" || id != 0 {
				t.Errorf("%s of %q: %+v", text, typed, e)
			}
			return
		}
		if back, err := f.Format(id); err != nil || back != typed && kind&1 == 0 {
			t.Errorf("%s of %q is %d, written as %q, %v", text, typed, id, back, err)
		} else if again, err := f.Read(back); err != nil || again != id {
			t.Errorf("%s of %q is %d, then %d, %v", text, typed, id, again, err)
		}
	})
}
