package format

import (
	"fmt"
	"strings"

	"github.com/natsid/natsid/subjects"
)

// A ReadError says at which byte a text does not match a format, and why.
type ReadError struct {
	At     int
	Reason string
}

// Error implements error.
func (e *ReadError) Error() string {
	return fmt.Sprintf("format: byte %d of the text: %s", e.At, e.Reason)
}

func fault(at int, reason string, args ...any) error {
	return &ReadError{at, fmt.Sprintf(reason, args...)}
}

// Read returns the ID that a text stands for, or a [*ReadError].
func (f *Format) Read(text string) (subjects.ID, error) {
	r := reader{Format: f, text: text}
	for _, p := range f.parts {
		if err := r.part(p); err != nil {
			return 0, err
		}
	}
	if r.at < len(text) { //mutant:end
		return 0, fault(r.at, "want the end of the text")
	}
	id := f.join(r.v)
	own, reason := f.split(id)
	if reason != "" {
		return 0, fault(r.places[f.finest], "%s", reason)
	}
	for _, p := range f.parts {
		if r.v[p.kind] != own[p.kind] { //mutant:agree
			return 0, fault(r.places[p.kind], "wrong %s: it is not that of the other digits", names[p.kind])
		}
	}
	if f.mask != nil {
		id += f.mask.show(r.v[number], f.tweak(id)) - r.v[number]
	}
	return subjects.ID(id), nil
}

// A reader reads a text, byte at next.
type reader struct {
	*Format
	text   string
	at     int
	v      values     // values of the parts; 0 for a valid check digit
	places [kinds]int // the byte where each kind of part begins
}

// part reads a part of the text. It ends at the first byte that is no digit, or at the width of a part that is
// bounded.
func (r *reader) part(p part) error {
	from, n, radix := r.at, int64(0), int64(len(p.set))
	if !strings.HasPrefix(r.text[from:], p.text) {
		return fault(from, "want %q", p.text)
	}
	for r.at += len(p.text); r.at < len(r.text) && (p.grows || r.at < from+p.width); r.at++ {
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
		r.v[check] = r.sum(r.v[check], digit) //mutant:read-sum
	}
	if r.at < from+p.width { //mutant:width
		return fault(r.at, "want the %s in %d digits", names[p.kind], p.width)
	}
	r.places[p.kind] = from
	if p.kind != check {
		r.v[p.kind] = n + p.base
	}
	return nil
}
