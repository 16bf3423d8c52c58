package format

import (
	"fmt"
	"strings"
)

// A reader is at a byte of a text.
type reader struct {
	*Format
	text   string
	at     int
	v      values     // that of the check digit is 0 if it fits
	places [kinds]int // where each part begins
}

func fault(at int, reason string, args ...any) error {
	return &ReadError{at, fmt.Sprintf(reason, args...)}
}

// Read returns the ID whose text this is, or a [*ReadError].
func (f *Format) Read(text string) (id int64, err error) {
	r := reader{Format: f, text: text}
	for _, p := range f.parts {
		r.places[p.kind] = r.at
		if p.kind != literal {
			err = r.number(p)
		} else if !strings.HasPrefix(text[r.at:], p.text) {
			err = fault(r.at, "want %q", p.text)
		}
		if err != nil {
			return 0, err
		}
		r.at += len(p.text)
	}
	if r.at < len(text) { //mutant:end
		return 0, fault(r.at, "want the end of the text")
	}
	id = f.period.join(r.v)
	own, reason := f.split(id)
	if reason != "" {
		return 0, fault(r.places[f.period.finest()], "%s", reason)
	}
	for _, p := range f.parts {
		switch {
		case r.v[p.kind] == own[p.kind]: //mutant:agree
		case p.kind == check:
			return 0, fault(r.places[check], "wrong check digit: it, or a digit before it, is mistyped")
		default:
			return 0, fault(r.places[p.kind], "the %s is not that of the ID", names[p.kind])
		}
	}
	return id, nil
}

// number reads a value. It ends where no digit is, or at its width.
func (r *reader) number(p part) error {
	n, from, radix := int64(0), r.at, int64(len(p.set))
	for ; r.at < len(r.text) && (p.grows || r.at < from+p.width); r.at++ {
		digit := p.value(r.text[r.at], r.lenient) //mutant:lenient
		if digit < 0 {
			break
		}
		if r.at >= from+p.width && n <= p.highest(p.width-1) { //mutant:zero
			return fault(from, "a zero too many: the number has at least %d digits", p.width)
		}
		if n > (p.max-digit)/radix { //mutant:max
			return fault(from, "the %s is above %d", names[p.kind], p.max)
		}
		n = n*radix + digit
		r.v[check] = r.sum(r.v[check], digit)
	}
	if r.at < from+p.width { //mutant:width
		return fault(r.at, "want the %s in %d digits", names[p.kind], p.width)
	}
	if p.kind == yy {
		r.v[year] = 2000 + n
	}
	if p.kind != check {
		r.v[p.kind] = n
	}
	return nil
}
