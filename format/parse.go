package format

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var (
	piece = regexp.MustCompile(`^(?:\{\{|}}|[ -z|~]|` +
		`\{id(?::([1-9]\d?))?}|\{id:([1-9]\d?)?:(crockford|[2-9]|[1-5]\d|6[0-2])}|` +
		`\{date:((?:yyyy|yy|MM|dd|HH|mm|ss|SSS|[ -/:-@[-_|~])+)}|\{business}|\{check}|` +
		`\{mask:([a-z0-9][a-z0-9-]{0,31}):([6-9]|1[0-8])})`)
	field  = regexp.MustCompile(`yyyy|yy|MM|dd|HH|mm|ss|SSS|.`)
	fields = map[string]int{"yyyy": year, "yy": year, "MM": month, "dd": day, "HH": hour, "mm": minute, "ss": second,
		"SSS": milli}
)

const wantPart = "want {id}, {id:WIDTH}, {id:WIDTH:RADIX} with a radix from 2 to 62 or crockford, " +
	"{mask:KEY:WIDTH} with a width from 6 to 18, {date:PATTERN} of yyyy, yy, MM, dd, HH, mm, ss, SSS and separators, " +
	"{business}, {check}, or {{ for a brace"

// A parser reads the text of a format, byte at next. Its methods return what is wrong there; "" if nothing is.
type parser struct {
	*Format
	at, id, side int        // id is the index of the part {id}; side is 0 before {id} and 1 behind it
	places       [kinds]int // where each kind of part begins, counted from 1; 0: not seen
	beside       [2]string  // the texts before and behind {id}, each part written as the digit 0
}

// Parse reads a format. The error names the place and the reason of a fault. Formats are at most 128 bytes.
//
// In a radix above 36 the texts of two IDs may differ only in upper and lower case: a column that ignores case, as
// MySQL's do by default, takes them as equal.
func Parse(text string, opts ...Option) (*Format, error) {
	p := parser{Format: &Format{text: text, sum: func(int64, int64) int64 { return 0 }}}
	for _, o := range opts {
		o(p.Format)
	}
	if len(text) > 128 {
		return nil, fmt.Errorf("format: %d bytes, want at most 128", len(text))
	}
	fault := ""
	for p.at < len(text) && fault == "" {
		m := piece.FindStringSubmatch(text[p.at:])
		if fault = p.piece(m); fault == "" {
			p.at += len(m[0])
		}
	}
	if fault == "" {
		fault = p.finish()
	}
	if fault != "" {
		return nil, fmt.Errorf("format: byte %d of %+q: %s", p.at, text, fault)
	}
	return p.Format, nil
}

// piece adds to the format the literal text or the part in braces that m matched. A nil m is a fault.
func (p *parser) piece(m []string) (fault string) {
	switch {
	case m == nil && p.text[p.at] != '{':
		return "want printable ASCII, and }} for a brace"
	case m == nil:
		return wantPart
	case strings.HasPrefix(m[0], "{id"):
		return p.add(numberPart(m[1]+m[2], m[3]))
	case m[5] != "":
		return p.addMask(m[5], numberPart(m[6], ""))
	case m[0] == "{business}":
		return p.add(part{kind: business, set: decimal})
	case m[0] == "{check}":
		return p.add(part{kind: check, width: 1})
	case m[4] == "":
		p.literal(m[0][:1])
	}
	for _, name := range field.FindAllString(m[4], -1) {
		v := part{kind: fields[name], set: decimal, width: len(name)}
		if name == "yy" {
			v.base = 2000
		}
		if v.kind == literal {
			p.literal(name)
		} else if fault = p.add(v); fault != "" {
			break
		}
	}
	return fault
}

func numberPart(width, radix string) part {
	v := part{kind: number, set: decimal}
	v.width, _ = strconv.Atoi(width)
	if n, _ := strconv.Atoi(radix); n > 0 {
		v.set = alphabet[:n]
	} else if radix != "" {
		v.set = crockford
	}
	return v
}

func (p *parser) literal(text string) {
	p.beside[p.side] += text
	if last := len(p.parts) - 1; last >= 0 && p.parts[last].kind == literal {
		p.parts[last].text += text
	} else {
		p.parts = append(p.parts, part{text: text})
	}
}

func (p *parser) add(v part) (fault string) {
	switch {
	case p.places[v.kind] > 0:
		return "a second " + names[v.kind]
	case p.places[check] > 0: //mutant:check-last
		return "want {check} behind all that it checks"
	case v.kind > number && v.kind < check && p.layout == nil, v.kind == business && p.layout.Business == 0:
		return "these IDs have no " + names[v.kind]
	case v.kind == number:
		p.id, p.side = len(p.parts), 1
	case v.kind == business:
		v.width = len(v.append(nil, p.layout.MaxBusiness()))
	case v.kind == check && p.side == 1:
		v.set = p.parts[p.id].set
	}
	if v.kind == check && sums[v.set] == nil {
		return "want {check} behind an {id} in decimals or crockford: there is none for another radix"
	}
	if v.kind == check {
		p.sum = sums[v.set]
	}
	if v.kind != number {
		p.beside[p.side] += "0"
	}
	p.places[v.kind], v.max = p.at+1, v.highest(v.width)
	p.parts = append(p.parts, v)
	return ""
}

// addMask adds a masked number, {mask:…}.
func (p *parser) addMask(name string, v part) (fault string) {
	key := p.keys[name]
	switch {
	case p.layout != nil:
		return "snowflakes are not masked: want {id}"
	case key == nil:
		return "there is no key named " + name
	case p.tag == "":
		return "a mask is that of a tag: its name is missing"
	}
	var err error
	if p.mask, err = newMask(key, v.width); err != nil {
		return "the key " + name + ": " + err.Error()
	}
	return p.add(v)
}

// finish sets the date and the highest number of the format, and refuses an ambiguous format.
func (p *parser) finish() (fault string) {
	if p.side == 0 {
		return "want an {id}"
	}
	if strings.HasPrefix(p.beside[0], " ") {
		p.at = 0
		return "want no space at the start of texts, where it is lost easily"
	}
	if strings.HasSuffix(p.beside[1], " ") {
		return "want no space at the end of texts, where it is lost easily"
	}
	p.max, p.finest = math.MaxInt64, number
	if p.layout != nil {
		p.max = 1<<p.layout.Bits() - 1
	}
	for k := year; k <= day && p.layout == nil; k++ {
		if k > year && p.places[k] > 0 && p.places[k-1] == 0 { //mutant:coarser
			p.at = p.places[k] - 1
			return "want the " + names[k-1] + ", too: without it, dates read alike"
		}
		if p.places[k] > 0 {
			p.finest, p.max = k, sizes[k]-1
		}
	}
	p.at = p.places[number] - 1
	return p.bound(&p.parts[p.id])
}

// bound lets {id} grow to the highest number, unless a byte beside it could be taken for one of its digits.
func (p *parser) bound(v *part) (fault string) {
	most := len(part{set: v.set}.append(nil, p.max))
	v.grows = p.mask == nil
	for _, c := range []byte(p.beside[0][max(0, len(p.beside[0])-1):] + p.beside[1][:min(1, len(p.beside[1]))]) {
		v.grows = v.grows && v.value(c, true) < 0 //mutant:beside
	}
	switch {
	case v.width > most:
		return fmt.Sprintf("want a width of at most %d", most)
	case v.grows: //mutant:grows
	case v.width == 0:
		return "ambiguous without a width: what is beside it could be its digit"
	case p.layout != nil && v.width < most:
		return fmt.Sprintf("ambiguous: what is beside it could be its digit, and snowflakes need a width of %d", most)
	default:
		p.max = min(p.max, v.highest(v.width)) //mutant:bound
	}
	v.width, v.max = max(1, v.width), p.max
	return ""
}
