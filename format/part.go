package format

import (
	"math"
	"strings"
	"time"
)

// A part is a piece of the text: literal text, or a value in digits.
type part struct {
	kind  int
	text  string // the text of a literal
	set   string // the digits in the order of their values; "" for a literal
	width int    // number of digits; the least number if the part grows
	grows bool
	base  int64 // subtracted from the value before it is written
	max   int64 // highest number that is written
}

// The kinds of parts. IDs of tags may have those from year to number, snowflakes those from year to business, and
// both check.
const literal, year, month, day, number, hour, minute, second, milli, business, check, kinds = 0, 1, 2, 3, 4, 5, 6,
	7, 8, 9, 10, 11

var names = [kinds]string{"literal", "year", "month", "day", "number", "hour", "minute", "second", "millisecond",
	"business", "check digit"}

// values are the values of an ID's parts, by kind.
type values [kinds]int64

func (v *values) setTime(t time.Time) {
	v[year], v[month], v[day] = int64(t.Year()), int64(t.Month()), int64(t.Day())
	v[hour], v[minute], v[second] = int64(t.Hour()), int64(t.Minute()), int64(t.Second())
	v[milli] = int64(t.Nanosecond() / 1e6)
}

const (
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	decimal   = "0123456789"
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	loose     = "abcdefghjkmnpqrstvwxyzOoIiLl" // letters that Lenient accepts; meant has the digit of each
	meant     = "ABCDEFGHJKMNPQRSTVWXYZ001111"
)

// value returns the value of the digit c, -1 if c is no digit of the part.
func (p part) value(c byte, lenient bool) int64 {
	if i := strings.IndexByte(loose, c); lenient && i >= 0 && p.set == crockford {
		c = meant[i]
	}
	return int64(strings.IndexByte(p.set, c))
}

// append appends n in the part's digits; it appends nothing for a literal.
func (p part) append(dst []byte, n int64) []byte {
	var buf [63]byte // the digits of 2^63-1 in radix 2
	i := len(buf)
	for n -= p.base; n > 0 || len(buf)-i < p.width; n /= int64(len(p.set)) {
		i--
		buf[i] = p.set[n%int64(len(p.set))]
	}
	return append(dst, buf[i:]...)
}

// highest returns the highest number that the part can write in width digits, at most [math.MaxInt64].
func (p part) highest(width int) (n int64) {
	for range width {
		if n > math.MaxInt64/int64(len(p.set))-1 {
			return math.MaxInt64
		}
		n = (n+1)*int64(len(p.set)) - 1
	}
	return n
}

// The check digit is Damm's. His quasigroup of order 10 detects a swap of the neighbours x and y, as (c*x)*y =
// (c*y)*x only if x = y; and x*x = 0. The quasigroup of order 32 is 2(x+y) in GF(32), modulo x^5+x^2+1.
const quasigroup = "03175986427092154863420687135917509834266123045978" +
	"36742095815869720134894536201794386172052581436790"

var sums = map[string]func(interim, digit int64) int64{
	decimal:   func(interim, digit int64) int64 { return int64(quasigroup[10*interim+digit] - '0') },
	crockford: func(interim, digit int64) int64 { return (interim^digit)<<1 ^ (interim^digit)>>4*0b100101 },
}
