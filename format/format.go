// Package format writes IDs as people write them, such as SO-20261125-000042-4, and reads them back.
//
// A format is literal text with parts in braces; {{ and }} write braces. Literal text is ASCII, since letters of other
// scripts look alike. The digits of a radix are 0-9, A-Z and a-z.
//
//	{id}, {id:6}        the number; with at least 6 digits
//	{id:6:36}, {id::36} in a radix from 2 to 62
//	{id:8:crockford}    in Crockford's base32
//	{mask:k1:9}         in place of {id}: the number masked under the key k1, in exactly 6 to 18 digits
//	{date:yyyyMMdd}     the day of a daily tag; yyyyMM and yyyy are those of monthly and yearly tags
//	{business}          of a snowflake, in as many digits as the highest has
//	{check}             a digit by which Read detects a wrong digit, or two neighbours that are swapped
//
// A date has yyyy, or yy for 2000 to 2099, MM and dd, in any order, and separators. The date of a snowflake is in UTC,
// and may also have HH, mm, ss and SSS. A snowflake's date and business repeat what {id} says, so Read checks that they
// agree.
//
// The IDs of a daily tag are yyyyMMdd*10^8 + n, those of a monthly tag yyyyMM*10^10 + n, and those of a yearly tag
// yyyy*10^12 + n: below 2^53 up to the year 9006. If the format has the date, {id} is n.
//
// An ID has exactly one text. {id} may have more digits than its width. But where a digit may stand beside {id}, the
// width is a limit: see [Format.Max]. The check digit is Damm's over the digits of all parts; for base32 it is over
// GF(32).
//
// A mask is FF1 of NIST SP 800-38G in radix 10: a bijection of the numbers of its width, under a secret AES-256 key.
// The tweak is the tag; with a date it is the tag, "/" and the date as in the ID, such as so/20261125. So one key
// serves many tags, and each day has a mask of its own. A mask hides volume and order; it does not encrypt content, and
// a width below 10 digits can be searched. The format names the key, so that old texts stay readable after a new format
// names a new key.
package format

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// ErrRange is returned when a format cannot write an ID: the ID is above [Format.Max], or has no valid date.
var ErrRange = errors.New("format: the format cannot write the ID")

// A Format writes and reads IDs. Its methods are safe for concurrent use.
type Format struct {
	text    string
	parts   []part
	layout  *snowflake.Layout // of snowflakes; nil for IDs of a tag
	finest  int               // the finest field of a tag's date: year, month, day; the constant number if none
	max     int64             // highest number of {id}
	mask    *mask             // nil for {id}
	tag     string
	keys    map[string][]byte
	sum     func(interim, digit int64) int64 // adds a digit to the check digit so far
	lenient bool
}

// An Option of [Parse] says what kind of IDs a format writes, or how it reads them.
type Option func(*Format)

// Snowflakes says that the IDs are snowflakes of the layout, which must be valid. {date:…} is then the time of a
// snowflake in UTC, and {business} its business.
func Snowflakes(l snowflake.Layout) Option { return func(f *Format) { f.layout = &l } }

// Keys sets the keys of masks, by their names, for the IDs of a tag. A key has 32 bytes.
func Keys(tag string, keys map[string][]byte) Option {
	return func(f *Format) { f.tag, f.keys = tag, keys }
}

// Lenient lets Read accept lower case in Crockford's base32, and read o as 0 and i or l as 1.
func Lenient() Option { return func(f *Format) { f.lenient = true } }

// String returns the text that was parsed.
func (f *Format) String() string { return f.text }

// Max returns the highest number that {id} can write, for a daily tag within a day; [math.MaxInt64] if there is no
// limit.
func (f *Format) Max() subjects.ID { return subjects.ID(f.max) }

// Format returns the text of an ID, or an [ErrRange].
func (f *Format) Format(id subjects.ID) (string, error) {
	v, reason := f.split(int64(id))
	if reason != "" {
		return "", fmt.Errorf("%w %d: %s", ErrRange, id, reason)
	}
	if f.mask != nil {
		v[number] = f.mask.hide(v[number], f.tweak(int64(id)))
	}
	var text []byte
	for _, p := range f.parts {
		text = append(text, p.text...)
		from := len(text)
		text = p.append(text, v[p.kind])
		for _, c := range text[from:] {
			v[check] = f.sum(v[check], p.value(c, false)) //mutant:sum
		}
	}
	return string(text), nil
}

// split returns the values of an ID's parts, with 0 for the check digit, or the reason why the ID cannot be written.
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

// sizes is how many numbers a tag has in a day, a month and a year; 0 for the kind number, where there is no date.
var sizes = [number + 1]int64{day: 1e8, month: 1e10, year: 1e12}

const lastYear = 9006

// join returns the ID that has these values: the reverse of split.
func (f *Format) join(v values) int64 {
	size := sizes[f.finest]
	if size == 0 {
		return v[number]
	}
	return (v[year]*1e4+v[month]*100+v[day])*1e8/size*size + v[number]
}

func (f *Format) tweak(id int64) string {
	if size := sizes[f.finest]; size > 0 {
		return f.tag + "/" + strconv.FormatInt(id/size, 10) //mutant:tweak
	}
	return f.tag
}
