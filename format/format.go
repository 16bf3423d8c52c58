// Package format writes IDs as people write them, such as SO-20261125-000042-4, and reads them back.
//
// A format is literal text with parts in braces; {{ and }} write braces. Literal text is ASCII: beyond it, different
// letters look alike. The digits of a radix are 0-9, A-Z and a-z.
//
//	{id}, {id:6}        the number; with at least 6 digits
//	{id:6:36}, {id::36} in a radix from 2 to 62
//	{id:8:crockford}    in Crockford's base32
//	{mask:k1:9}         in place of {id}: the number masked under the key k1, in exactly 6 to 18 digits
//	{date:yyyyMMdd}     the day of a daily tag; yyyyMM and yyyy are those of monthly and yearly tags
//	{business}          of a snowflake, in as many digits as the highest has
//	{check}             a digit by which Read finds each wrong digit and each swap of neighbours
//
// A date has yyyy, or yy from 2000 to 2099, MM and dd, in any order, and separators; that of a snowflake is in UTC, and
// may have HH, mm, ss and SSS. A snowflake's date and business repeat what {id} says, and must agree.
//
// The IDs of a daily tag are yyyyMMdd*10^8 + n, those of a monthly one yyyyMM*10^10 + n, and those of a yearly one
// yyyy*10^12 + n: below 2^53 up to the year 9006. {id} is n where the format has the date.
//
// An ID has one text. {id} grows beyond its width, unless a digit beside it would then seem to be part of it: the width
// is a bound there, see [Format.Max]. The check digit is Damm's over the digits of all parts, over GF(32) for base32.
//
// A mask is FF1 of NIST SP 800-38G in radix 10: a bijection of all numbers of its width under a secret key of AES-256,
// for which the tag is the tweak; with a date, the tag, "/" and the date as in the ID, such as so/20261125. So one key
// serves many tags, and each day has a mask of its own. That hides volume and order; it is not encryption of content,
// and a width below 10 digits can be searched. The name of the key is part of the format, so that old texts stay
// readable where a new format names a new key.
package format

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// ErrRange is returned when a format cannot write an ID: it is above [Format.Max], or has no such date.
var ErrRange = errors.New("format: the format cannot write the ID")

// A Format writes and reads IDs. Its methods are safe for concurrent use.
type Format struct {
	text    string
	parts   []part
	layout  *snowflake.Layout // nil: of a tag
	finest  int               // the finest field of a tag's date; number without one, so that sizes[finest] is 0
	max     int64             // of {id}
	mask    *mask             // nil for {id}
	tag     string
	keys    map[string][]byte
	sum     func(interim, digit int64) int64 // the check digit after one more digit
	lenient bool
}

// An Option says what the IDs are, or how they are read.
type Option func(*Format)

// Snowflakes says that the IDs are snowflakes of a valid layout: {date:…} is then the time in UTC and {business} the
// business.
func Snowflakes(l snowflake.Layout) Option { return func(f *Format) { f.layout = &l } }

// Keys are the keys of masks by their names, each of 32 bytes, for the IDs of a tag.
func Keys(tag string, keys map[string][]byte) Option {
	return func(f *Format) { f.tag, f.keys = tag, keys }
}

// Lenient lets Read take o as 0, i and l as 1, and lower case, in Crockford's base32.
func Lenient() Option { return func(f *Format) { f.lenient = true } }

// String returns the text that was parsed.
func (f *Format) String() string { return f.text }

// Max returns the highest number of {id}, of a daily tag the highest of a day; [math.MaxInt64] without a bound.
func (f *Format) Max() subjects.ID { return subjects.ID(f.max) }

// Format returns the text of an ID, or an [ErrRange].
func (f *Format) Format(id subjects.ID) (string, error) {
	text, err := f.Append(nil, id)
	return string(text), err
}

// Append appends the text of an ID to dst; with an [ErrRange] it returns dst as it was.
func (f *Format) Append(dst []byte, id subjects.ID) ([]byte, error) {
	v, reason := f.split(int64(id))
	if reason != "" {
		return dst, fmt.Errorf("%w %d: %s", ErrRange, id, reason)
	}
	if f.mask != nil {
		v[number] = f.mask.hide(v[number], f.tweak(int64(id)))
	}
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
		p, err := f.layout.Decode(subjects.ID(id))
		if err != nil {
			return v, err.Error()
		}
		v.setTime(p.Time)
		v[business] = p.Business
	}
	if size := sizes[f.finest]; size > 0 {
		date := id/size*size/1e8 + [...]int64{month: 1, year: 101, day: 0}[f.finest]
		t := time.Date(int(date/1e4), time.Month(date/100%100), int(date%100), 0, 0, 0, 0, time.UTC)
		v.setTime(t)
		v[number] = id % size
		if f.join(v) != id || v[year] < 1 || v[year] > lastYear { //mutant:exists
			return v, fmt.Sprintf("there is no %s %d", names[f.finest], id/size)
		}
	}
	for _, p := range f.parts {
		if n := v[p.kind] - p.base; n < 0 || n > p.max { //mutant:range
			return v, fmt.Sprintf("the %s is %d, want %d to %d", names[p.kind], n+p.base, p.base, p.base+p.max)
		}
	}
	return v, ""
}

// sizes are how many numbers a day, a month and a year have.
var sizes = [number + 1]int64{day: 1e8, month: 1e10, year: 1e12}

const lastYear = 9006

// join returns the ID of a date and a number.
func (f *Format) join(v values) int64 {
	size := sizes[f.finest]
	if size == 0 {
		return v[number]
	}
	return (v[year]*1e4+v[month]*100+v[day])*1e8/size*size + v[number]
}

// tweak returns the tweak of an ID's mask.
func (f *Format) tweak(id int64) string {
	if size := sizes[f.finest]; size > 0 {
		return f.tag + "/" + strconv.FormatInt(id/size, 10) //mutant:tweak
	}
	return f.tag
}
