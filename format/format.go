// Package format writes IDs as people write them, such as SO-20261125-000042-4, and reads them back.
//
// A format is literal text with parts in braces; {{ and }} write braces. Literal text is ASCII: beyond it, different
// letters look alike. The digits of a radix are 0-9, A-Z and a-z.
//
//	{id}, {id:6}        the number; with at least 6 digits
//	{id:6:36}, {id::36} in a radix from 2 to 62
//	{id:8:crockford}    in Crockford's base32
//	{mask:k1:9}         in place of {id}: the number masked under the key k1, in exactly 9 digits
//	{mask:k1:8:36}      in a radix as {id} has it, also crockford
//	{date:yyyyMMdd}     the day of a daily tag; yyyyMM and yyyy are those of monthly and yearly tags
//	{business}          of a snowflake, in as many digits as the highest has
//	{check}             a digit by which Read finds each wrong digit and each swap of neighbours
//
// A date has yyyy, or yy from 2000 to 2099, MM and dd, in any order, and separators; that of a snowflake is in UTC, and
// may have HH, mm, ss and SSS. A snowflake's date and business repeat what {id} says, and must agree.
//
// An ID has one text. {id} grows beyond its width, unless a digit beside it would then seem to be part of it: the width
// is a bound there, see [Format.Max]. The check digit is Damm's over the digits of all parts, over GF(32) for base32.
//
// A mask shuffles all numbers of its width, 2^20 to 2^63 of them and no more than a period has, by a bijection under a
// secret [Key] and the date: this hides volume and order; it is not encryption of content, and a width below 32 bits
// can be searched. Tags that have the key, width and period in common mask equal numbers alike: give each a key of its
// own. The name of the key is part of the format, so that old texts stay readable where a new format names a new key.
// Where there is a check digit, its sum begins with the key's fingerprint modulo the radix: another key of the same
// name, which would read texts as other IDs, is then refused in 9 of 10 cases, or 31 of 32. Snowflakes are not masked.
package format

import (
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/mask"
	"github.com/natsid/natsid/snowflake"
)

// ErrRange is returned when a format cannot write an ID: it is above [Format.Max], or has no such date.
var ErrRange = errors.New("format: the format cannot write the ID")

// A Format writes and reads IDs. Its methods are safe for concurrent use.
type Format struct {
	text    string
	parts   []part
	layout  *snowflake.Layout // nil: of a tag
	period  Period
	max     int64    // of {id}
	mask    *masking // nil for {id}
	keys    []Key
	start   int64                            // what the check digit begins with
	sum     func(interim, digit int64) int64 // the check digit after one more digit
	lenient bool
}

// An Option says what the IDs are, or how they are read.
type Option func(*Format)

// Snowflakes says that the IDs are snowflakes of a valid layout: {date:…} is then the time in UTC and {business} the
// business.
func Snowflakes(l snowflake.Layout) Option { return func(f *Format) { f.layout = &l } }

// Lenient lets Read take o as 0, i and l as 1, and lower case, in Crockford's base32.
func Lenient() Option { return func(f *Format) { f.lenient = true } }

// String returns the text that was parsed.
func (f *Format) String() string { return f.text }

// Period returns the period that {id} counts in, by the finest field of {date:…}; None for snowflakes.
func (f *Format) Period() Period { return f.period }

// Max returns the highest number of {id}, of a daily tag the highest of a day; [math.MaxInt64] without a bound.
func (f *Format) Max() int64 { return f.max }

// Format returns the text of an ID, or an [ErrRange] or [ErrNoKey].
func (f *Format) Format(id int64) (string, error) {
	text, err := f.Append(nil, id)
	return string(text), err
}

// Append appends the text of an ID to dst; with an [ErrRange] or [ErrNoKey] it returns dst as it was.
func (f *Format) Append(dst []byte, id int64) ([]byte, error) {
	v, reason := f.split(id)
	if reason != "" {
		return dst, fmt.Errorf("%w %d: %s", ErrRange, id, reason)
	}
	shown, err := f.turn((*mask.Mask).Hide, id, v[number])
	if err != nil {
		return dst, err
	}
	v[number], v[check] = shown, f.start
	for _, p := range f.parts {
		dst = append(dst, p.text...)
		from := len(dst)
		dst = p.append(dst, v[p.kind])
		for _, c := range dst[from:] {
			v[check] = f.sum(v[check], p.value(c, false)) //mutant:sum
		}
	}
	return dst, nil
}

// split returns the values of an ID's parts, 0 for the check digit, or the reason why it has none.
func (f *Format) split(id int64) (v values, reason string) {
	v[number] = id
	if f.layout != nil {
		p, err := f.layout.Decode(id)
		if err != nil {
			return v, err.Error()
		}
		v.setTime(p.Time)
		v[business] = p.Business
	}
	if f.period != None {
		t := f.period.start(id)
		v.setTime(t)
		v[number] = id - f.period.Join(t)
		if v[number] != id%f.period.Size() || v[year] < 1 || v[year] > lastYear { //mutant:exists
			return v, fmt.Sprintf("there is no %s %d", names[f.period.finest()], id/f.period.Size())
		}
	}
	for _, p := range f.parts {
		if n := v[p.kind] - p.base; n < 0 || n > p.max { //mutant:range
			return v, fmt.Sprintf("the %s is %d, want %d to %d", names[p.kind], n+p.base, p.base, p.base+p.max)
		}
	}
	return v, ""
}
