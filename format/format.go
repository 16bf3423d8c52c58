// Package format writes IDs as people write them, such as SO-20261125-000042-7, and reads them back.
//
// A format is literal text in ASCII, since beyond it different letters look alike, with parts in braces; {{ and }} write
// braces. The digits of a radix are 0-9, A-Z and a-z.
//
//	{id}, {id:6}        the number; with at least 6 digits
//	{id:6:36}, {id::36} in a radix from 2 to 62
//	{id:8:crockford}    in Crockford's base32
//	{date:yyyyMMdd}     the day of a daily tag; yyyyMM and yyyy are those of monthly and yearly tags
//	{business}          of a snowflake, in as many digits as the highest has
//	{check}             a digit by which Read finds each wrong digit and each swap of neighbours
//
// A date has yyyy, or yy from 2000 to 2099, MM and dd, in any order and with separators; that of a snowflake is in UTC
// and may have HH, mm, ss and SSS. What a snowflake's date and business say is in {id}, too, and must agree with it.
//
// An ID has one text. {id} grows beyond its width, unless a digit beside it would then seem to be part of it: the width
// is the bound there, see [Format.Max]. The check digit is Damm's over the digits of all parts, over GF(32) for base32.
package format

import (
	"errors"
	"fmt"

	"github.com/natsid/natsid/snowflake"
)

// ErrRange is returned when a format cannot write an ID: it is above [Format.Max], or has no such date.
var ErrRange = errors.New("format: the format cannot write the ID")

// A ReadError says at which byte a text is not of a format, and why.
type ReadError struct {
	At     int
	Reason string
}

// Error implements error.
func (e *ReadError) Error() string {
	return fmt.Sprintf("format: byte %d of the text: %s", e.At, e.Reason)
}

// A Format writes and reads IDs. Its methods are safe for concurrent use.
type Format struct {
	text    string
	parts   []part
	layout  *snowflake.Layout // nil: of a tag
	period  Period
	max     int64                            // of {id}
	sum     func(interim, digit int64) int64 // the check digit after one more digit
	lenient bool
}

// An Option says what IDs are, or how they are read.
type Option func(*Format)

// Snowflakes says that the IDs are snowflakes of a layout: {date:…} is then the time in UTC and {business} the business.
func Snowflakes(l snowflake.Layout) Option { return func(f *Format) { f.layout = &l } }

// Lenient lets Read take o as 0, i and l as 1, and lower case, in Crockford's base32.
func Lenient() Option { return func(f *Format) { f.lenient = true } }

// String returns the text that was parsed.
func (f *Format) String() string { return f.text }

// Period returns the period whose numbers {id} are, by the finest field of {date:…}; None for snowflakes.
func (f *Format) Period() Period { return f.period }

// Max returns the highest number that {id} can have, of a daily tag the highest of a day; [math.MaxInt64] if it has no
// bound.
func (f *Format) Max() int64 { return f.max }

// Format returns the text of an ID, or an [ErrRange].
func (f *Format) Format(id int64) (string, error) {
	text, err := f.Append(nil, id)
	return string(text), err
}

// Append appends the text of an ID to dst; with an [ErrRange] it returns dst as it was.
func (f *Format) Append(dst []byte, id int64) ([]byte, error) {
	v, reason := f.split(id)
	if reason != "" {
		return dst, fmt.Errorf("%w %d: %s", ErrRange, id, reason)
	}
	for _, p := range f.parts {
		if p.kind == literal {
			dst = append(dst, p.text...)
			continue
		}
		from := len(dst)
		dst = p.append(dst, v[p.kind])
		for _, c := range dst[from:] {
			v[check] = f.sum(v[check], p.value(c, false)) //mutant:sum
		}
	}
	return dst, nil
}

// split returns the values of an ID's parts, or the reason why it has none. That of the check digit is 0.
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
			return v, fmt.Sprintf("there is no %s %d from the years 1 to %d", names[f.period.finest()], id/f.period.Size(), lastYear)
		}
	}
	for _, p := range f.parts {
		if v[p.kind] < 0 || v[p.kind] > p.max { //mutant:range
			return v, fmt.Sprintf("the %s is %d, want 0 to %d", names[p.kind], v[p.kind], p.max)
		}
	}
	return v, ""
}
