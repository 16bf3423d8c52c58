package format

import (
	"math"
	"strings"
	"time"
)

// A part is a piece of the text: literal, or a value in digits.
type part struct {
	kind  int
	text  string // of a literal
	set   string // the digits by their values
	width int    // at least so many digits, at most unless the part grows
	grows bool
	max   int64
}

// The kinds of parts: first those that periods have.
const literal, year, month, day, number, hour, minute, second, milli, yy, business, check, kinds = 0, 1, 2, 3, 4, 5, 6, 7,
	8, 9, 10, 11, 12

var names = [kinds]string{"literal", "year", "month", "day", "number", "hour", "minute", "second", "millisecond",
	"year since 2000", "business", "check digit"}

// values are those of an ID's parts.
type values [kinds]int64

func (v *values) setTime(t time.Time) {
	y, m, d := t.Date()
	v[year], v[month], v[day], v[yy] = int64(y), int64(m), int64(d), int64(y-2000)
	v[hour], v[minute], v[second] = int64(t.Hour()), int64(t.Minute()), int64(t.Second())
	v[milli] = int64(t.Nanosecond() / 1e6)
}

const (
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	decimal   = "0123456789"
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	loose     = "abcdefghjkmnpqrstvwxyzOoIiLl" // what Lenient takes
	meant     = "ABCDEFGHJKMNPQRSTVWXYZ001111"
)

// value returns the value of a digit, -1 for another byte.
func (p part) value(c byte, lenient bool) int64 {
	if i := strings.IndexByte(loose, c); lenient && i >= 0 && p.set == crockford {
		c = meant[i]
	}
	return int64(strings.IndexByte(p.set, c))
}

// append appends a value in digits.
func (p part) append(dst []byte, n int64) []byte {
	var buf [63]byte // radix 2
	i, radix := len(buf), int64(len(p.set))
	for ; n > 0 || len(buf)-i < p.width; n /= radix {
		i--
		buf[i] = p.set[n%radix]
	}
	return append(dst, buf[i:]...)
}

// highest returns the highest value of so many digits, or [math.MaxInt64].
func (p part) highest(width int) (n int64) {
	radix := int64(len(p.set))
	for range width {
		if n > (math.MaxInt64-radix+1)/radix {
			return math.MaxInt64
		}
		n = n*radix + radix - 1
	}
	return n
}

// quasigroup is Damm's of order 10: totally anti-symmetric, with x*x = 0.
const quasigroup = "0317598642" + "7092154863" + "4206871359" + "1750983426" + "6123045978" +
	"3674209581" + "5869720134" + "8945362017" + "9438617205" + "2581436790"

func damm(interim, digit int64) int64 { return int64(quasigroup[10*interim+digit] - '0') }

// damm32 is multiplication by 2 in GF(32), of the polynomial x^5+x^2+1: (c*x)*y is not (c*y)*x unless x = y.
func damm32(interim, digit int64) int64 {
	double := (interim ^ digit) << 1
	return double ^ double>>5*0b100101
}

var sums = map[string]func(interim, digit int64) int64{decimal: damm, crockford: damm32}
