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

// Version is the version of the entries' format.
const Version = 1

// encode returns an entry that ends with the line that brings it above limit bytes, if one does, and the part of b
// that is not in it. It groups the loads by tag.
func (b *Batch) encode(limit int) (body []byte, left Batch) {
	b.Version = Version
	body, err := json.Marshal(b.Head)
	if err != nil {
		panic(err) // cannot be: strings and numbers
	}
	body = append(body, '\n')
	slices.SortStableFunc(b.Loads, func(x, y Load) int { return strings.Compare(x.Tag, y.Tag) })
	left = *b
	for len(left.Windows) > 0 && len(body) <= limit {
		w := left.Windows[0]
		left.Windows = left.Windows[1:]
		body = fmt.Appendf(body, "w %d %d %d %s %d\n", w.Number, w.From, w.Until, w.How, w.Time)
	}
	for last := (*Load)(nil); len(left.Loads) > 0 && len(body) <= limit; left.Loads = left.Loads[1:] {
		body = left.Loads[0].append(body, last)
		last = &left.Loads[0]
	}
	for len(left.Writes) > 0 && len(body) <= limit {
		body = left.Writes[0].append(body)
		left.Writes = left.Writes[1:]
	}
	for len(left.Discards) > 0 && len(body) <= limit {
		d := left.Discards[0]
		left.Discards = left.Discards[1:]
		body = fmt.Appendf(body, "d %d %d %d %s\n", d.First, d.Last, d.Time, d.Tag)
	}
	return body, left
}

// append appends the line of a load. last is the load of the line before, or nil.
func (l *Load) append(body []byte, last *Load) []byte {
	if last == nil || last.Tag != l.Tag || last.Number != l.Number {
		body = appendNumbers(append(body, 't'), int64(l.Number), l.First, l.Last, int64(l.Read),
			since(l.Written, l.Read), l.Time, l.below())
		return append(append(append(appendAge(body, l.Time, l.Replaced), ' '), l.Tag...), '\n')
	}
	body = appendNumbers(append(body, '+'), l.First-last.Last-1, (l.Last-l.First)-(last.Last-last.First),
		int64(l.Read-last.Written), since(l.Written, l.Read), l.Time-last.Time, l.below())
	if l.Read != last.Written {
		body = appendAge(body, l.Time, l.Replaced)
	}
	return append(bytes.TrimRight(body, " "), '\n')
}

// below returns how many IDs the load left out above the mark.
func (l *Load) below() int64 {
	if l.Read == 0 {
		return 0 // there was no mark
	}
	return l.First - l.Before
}

// append appends the line of a write.
func (w *Write) append(body []byte) []byte {
	body = append(append(body, "c "...), w.How...)
	body = appendNumbers(body, w.After, w.After-w.Before, int64(w.Read), since(w.Written, w.Read), w.Time)
	return append(append(append(appendAge(body, w.Time, w.Replaced), ' '), w.Tag...), '\n')
}

// since returns how far a revision is above another one, 0 if it is unknown.
func since(written, read uint64) int64 {
	if written == 0 {
		return 0
	}
	return int64(written - read)
}

// appendNumbers appends numbers with a space before each, and nothing for 0.
func appendNumbers(body []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		if body = append(body, ' '); n != 0 {
			body = strconv.AppendInt(body, n, 10)
		}
	}
	return body
}

// appendAge appends the age of the replaced entry, and nothing if that is unknown.
func appendAge(body []byte, time, replaced int64) []byte {
	if body = append(body, ' '); replaced != 0 {
		body = strconv.AppendInt(body, time-replaced, 10)
	}
	return body
}

// ErrUnreadable is returned for an entry that no natsid of this version wrote.
var ErrUnreadable = errors.New("grants: an entry that cannot be read")

// decode reads an entry into b, whose slices it reuses. names keeps the tags read before.
func (b *Batch) decode(body []byte, names map[string]string) error {
	*b = Batch{Windows: b.Windows[:0], Loads: b.Loads[:0], Writes: b.Writes[:0], Discards: b.Discards[:0]}
	head, rest, _ := bytes.Cut(body, []byte{'\n'})
	if err := json.Unmarshal(head, &b.Head); err != nil {
		return fmt.Errorf("%w: its head: %w", ErrUnreadable, err)
	}
	if b.Version != Version || b.Process == "" {
		return fmt.Errorf("%w: version %d of process %q, want version %d",
			ErrUnreadable, b.Version, b.Process, Version)
	}
	for line := 2; len(rest) > 0; line++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if !b.readLine(text, names) {
			return fmt.Errorf("%w: line %d of entry %d of process %s", ErrUnreadable, line, b.Entry, b.Process)
		}
	}
	return nil
}

// readLine reads a line, and reports whether the line is valid.
func (b *Batch) readLine(text []byte, names map[string]string) bool {
	f := fields{rest: text}
	switch string(f.next()) {
	case "t":
		l := f.load()
		l.Tag = nameIn(names, f.rest)
		b.Loads = append(b.Loads, l)
		return !f.malformed && l.isValid()
	case "+":
		if len(b.Loads) == 0 {
			return false
		}
		l := f.nextLoad(b.Loads[len(b.Loads)-1])
		b.Loads = append(b.Loads, l)
		return !f.malformed && len(f.rest) == 0 && l.isValid()
	case "c":
		w := f.write()
		w.Tag = nameIn(names, f.rest)
		b.Writes = append(b.Writes, w)
		return !f.malformed && w.isValid()
	case "d":
		d := Discard{First: f.number(), Last: f.number(), Time: f.number()}
		d.Tag = nameIn(names, f.rest)
		b.Discards = append(b.Discards, d)
		return !f.malformed && d.Tag != "" && 1 <= d.First && d.First <= d.Last
	case "w":
		w := Window{Number: int(f.number()), From: f.number(), Until: f.number()}
		w.How, w.Time = string(f.next()), f.number()
		b.Windows = append(b.Windows, w)
		return !f.malformed && len(f.rest) == 0 && w.How != ""
	}
	return false
}

// load reads the line of a load that follows no other load, except its tag.
func (f *fields) load() Load {
	l := Load{Number: int(f.number()), First: f.number(), Last: f.number(), Read: uint64(f.number())}
	return f.mark(l, 0)
}

// nextLoad reads the line of a load that follows another one.
func (f *fields) nextLoad(last Load) Load {
	l := Load{Tag: last.Tag, Number: last.Number, First: last.Last + 1 + f.number()}
	l.Last = l.First + last.Last - last.First + f.number()
	l.Read = last.Written + uint64(f.number())
	return f.mark(l, last.Time)
}

// mark reads the common end of both kinds of lines.
func (f *fields) mark(l Load, began int64) Load {
	l.Written = f.revision(l.Read)
	l.Time = began + f.number()
	if below := f.number(); l.Read > 0 {
		l.Before = l.First - below
	}
	l.Replaced = f.replaced(l.Time)
	return l
}

// write reads the line of a write, except its tag.
func (f *fields) write() Write {
	w := Write{How: string(f.next()), After: f.number()}
	w.Before = w.After - f.number()
	w.Read = uint64(f.number())
	w.Written = f.revision(w.Read)
	w.Time = f.number()
	w.Replaced = f.replaced(w.Time)
	return w
}

// revision reads the revision that replaced read, 0 if it is unknown.
func (f *fields) revision(read uint64) uint64 {
	if since := f.number(); since != 0 {
		return read + uint64(since)
	}
	return 0
}

// replaced reads when the replaced entry had been written, 0 if that is unknown.
func (f *fields) replaced(time int64) int64 {
	if age, ok := f.optional(); ok {
		return time - age
	}
	return 0
}

// isValid reports whether a load is consistent.
func (l *Load) isValid() bool {
	end := l.Last + 1
	return l.Tag != "" && 1 <= l.First && l.First < end && 0 <= l.Before && l.Before <= end &&
		follows(l.Read, l.Written)
}

// isValid reports whether a write is consistent.
func (w *Write) isValid() bool {
	return w.Tag != "" && w.How != "" && 1 <= w.After && 0 <= w.Before && w.Before <= w.After &&
		follows(w.Read, w.Written)
}

// follows reports whether a revision can replace another one. No stream reaches maxRevision.
func follows(read, written uint64) bool {
	return read < maxRevision && written < maxRevision && (written == 0 || written > read)
}

const maxRevision = 1 << 60

// nameIn returns a tag as a string, which it shares with names.
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

// maxNames bounds the tags in names, where an equal name is stored once.
const maxNames = 200_000

// fields reads words and whole numbers that are separated by spaces.
type fields struct {
	rest      []byte
	malformed bool
}

func (f *fields) next() []byte {
	word, rest, _ := bytes.Cut(f.rest, []byte{' '})
	f.rest = rest
	return word
}

// number reads a number, or nothing for 0.
func (f *fields) number() int64 {
	n, _ := f.optional()
	return n
}

// optional reads a number, and reports whether there is one.
func (f *fields) optional() (n int64, ok bool) {
	word := f.next()
	if len(word) == 0 {
		return 0, false
	}
	negative := word[0] == '-'
	if negative {
		word = word[1:]
	}
	if len(word) == 0 || len(word) > 19 {
		f.malformed = true
	}
	for _, c := range word {
		f.malformed = f.malformed || c < '0' || c > '9'
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n, true
	}
	f.malformed = f.malformed || n < 0
	return n, true
}
