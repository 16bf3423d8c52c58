package grants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// encode returns an entry that ends with the grant that brings it above limit bytes, if one does, and how many windows,
// loads and discards of b are in it. It groups the loads by tag.
func (b *Batch) encode(limit int) (body []byte, windows, loads, discards int) {
	b.Version = 1
	body, err := json.Marshal(b.Head)
	if err != nil {
		panic(err) // cannot be: strings and numbers
	}
	body = append(body, '\n')
	for _, w := range b.Windows {
		if len(body) > limit {
			return body, windows, 0, 0
		}
		body = fmt.Appendf(body, "w %d %d %d %s %d\n", w.Number, w.From, w.Until, w.How, w.Time)
		windows++
	}
	slices.SortStableFunc(b.Loads, func(x, y Load) int { return strings.Compare(x.Tag, y.Tag) })
	var last *Load
	for i := range b.Loads {
		if len(body) > limit {
			return body, windows, loads, 0
		}
		l := &b.Loads[i]
		body = l.append(body, last)
		last = l
		loads++
	}
	for _, d := range b.Discards {
		if len(body) > limit {
			break
		}
		body = fmt.Appendf(body, "d %d %d %d %s\n", d.First, d.Last, d.Time, d.Tag)
		discards++
	}
	return body, windows, loads, discards
}

// append appends the line of a load, which follows another one unless last is nil.
func (l *Load) append(body []byte, last *Load) []byte {
	if last == nil || last.Tag != l.Tag || last.Number != l.Number {
		body = append(body, 't')
		for _, n := range [...]int64{int64(l.Number), l.First, l.Last, int64(l.Revision), l.Time} {
			body = strconv.AppendInt(append(body, ' '), n, 10)
		}
		return append(append(append(body, ' '), l.Tag...), '\n')
	}
	body = append(body, '+')
	for _, n := range [...]int64{
		l.First - last.Last - 1, l.Last - l.First, int64(l.Revision - last.Revision), l.Time - last.Time,
	} {
		body = strconv.AppendInt(append(body, ' '), n, 10)
	}
	return append(body, '\n')
}

// ErrUnreadable is returned for an entry that no natsid of this version wrote.
var ErrUnreadable = errors.New("grants: an entry that cannot be read")

// decode reads an entry into b, whose slices it uses again. names keeps the tags that were read before.
func (b *Batch) decode(body []byte, names map[string]string) error {
	b.Head, b.Windows, b.Loads, b.Discards = Head{}, b.Windows[:0], b.Loads[:0], b.Discards[:0]
	head, rest, _ := bytes.Cut(body, []byte{'\n'})
	if err := json.Unmarshal(head, &b.Head); err != nil {
		return fmt.Errorf("%w: its head: %w", ErrUnreadable, err)
	}
	if b.Version != 1 || b.Process == "" {
		return fmt.Errorf("%w: version %d of process %q, want version 1", ErrUnreadable, b.Version, b.Process)
	}
	for line := 2; len(rest) > 0; line++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if !b.line(text, names) {
			return fmt.Errorf("%w: line %d of entry %d of process %s", ErrUnreadable, line, b.Entry, b.Process)
		}
	}
	return nil
}

// line reads a line, and reports whether it can be.
func (b *Batch) line(text []byte, names map[string]string) bool {
	f := fields{rest: text}
	switch string(f.next()) {
	case "t":
		l := Load{Number: int(f.number()), First: f.number(), Last: f.number(), Revision: uint64(f.number()),
			Time: f.number()}
		l.Tag = nameIn(names, f.rest)
		b.Loads = append(b.Loads, l)
		return !f.bad && l.Tag != "" && sound(l.First, l.Last)
	case "d":
		d := Discard{First: f.number(), Last: f.number(), Time: f.number()}
		d.Tag = nameIn(names, f.rest)
		b.Discards = append(b.Discards, d)
		return !f.bad && d.Tag != "" && sound(d.First, d.Last)
	case "+":
		if len(b.Loads) == 0 {
			return false
		}
		l := b.Loads[len(b.Loads)-1]
		l.First = l.Last + 1 + f.number()
		l.Last = l.First + f.number()
		l.Revision += uint64(f.number())
		l.Time += f.number()
		b.Loads = append(b.Loads, l)
		return !f.bad && len(f.rest) == 0 && sound(l.First, l.Last)
	case "w":
		w := Window{Number: int(f.number()), From: f.number(), Until: f.number()}
		w.How, w.Time = string(f.next()), f.number()
		b.Windows = append(b.Windows, w)
		return !f.bad && len(f.rest) == 0 && w.How != ""
	}
	return false
}

func sound(first, last int64) bool { return 1 <= first && first <= last }

// nameIn returns a tag as a string that names has, too.
func nameIn(names map[string]string, text []byte) string {
	if len(names) > maxNames {
		clear(names)
	}
	name, ok := names[string(text)]
	if !ok {
		name = string(text)
		names[name] = name
	}
	return name
}

// maxNames bounds the tags that a reader keeps, so that an equal name is stored once.
const maxNames = 200_000

// fields reads words and whole numbers that are separated by spaces.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) next() []byte {
	word, rest, _ := bytes.Cut(f.rest, []byte{' '})
	f.rest = rest
	return word
}

func (f *fields) number() (n int64) {
	word := f.next()
	negative := len(word) > 0 && word[0] == '-'
	if negative {
		word = word[1:]
	}
	if len(word) == 0 || len(word) > 19 {
		f.bad = true
	}
	for _, c := range word {
		f.bad = f.bad || c < '0' || c > '9'
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	f.bad = f.bad || n < 0
	return n
}
