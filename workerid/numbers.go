package workerid

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// Holders names the machine numbers of each site that are for programs that draw their own snowflakes: the first and
// the last, such as 512-1023, or off for none. "" is the upper half. All other numbers are for workers. So programs
// cannot use up the numbers of workers, nor workers those of programs.
//
// Law: uniqueness does not depend on Holders. A number has one owner at a time, and a process keeps its number when the
// range changes.
type Holders string

// NoHolders leaves all numbers to workers.
const NoHolders Holders = "off"

// Of returns the numbers of a site that are for programs; an empty span if there are none. The error names what is
// wrong in the text.
func (h Holders) Of(l snowflake.Layout, site int) (s Span, err error) {
	first, count := l.Numbers(site)
	switch h {
	case "":
		return Span{first + count/2, first + count - 1}, nil
	case NoHolders:
		return Span{first, first - 1}, nil
	}
	if s, err = ParseSpan(string(h)); err == nil {
		s.First, s.Last = first+s.First, first+s.Last
		err = s.Within(l, site)
	}
	if err != nil {
		return s, fmt.Errorf("numbers of programs: %q: %w, or %s", string(h), err, NoHolders)
	}
	return s, nil
}

// numbers are the worker numbers that this process may take. A program may take the numbers for programs in the
// span. A worker may take the others in the span; if an operator named the span, it may take all.
type numbers struct {
	Span
	holders          Span
	isProgram, named bool
}

func numbersOf(cfg Config) numbers {
	n := numbers{Span: NumbersOf(cfg.Layout, cfg.Site), isProgram: cfg.Program != "", named: cfg.Numbers != nil}
	if n.named {
		n.Span = *cfg.Numbers
	}
	return n
}

func (n numbers) has(w int) bool {
	isFor := n.named || !n.holders.has(w) //mutant:left-to-programs
	if n.isProgram {
		isFor = n.holders.has(w) //mutant:range
	}
	return isFor && n.Span.has(w)
}

// exhausted describes the numbers that this process may take, none of which is free, and which of them is free first.
func (n numbers) exhausted(v view) string {
	count, first := 0, -1
	for w := n.First; w <= n.Last; w++ {
		if !n.has(w) {
			continue
		}
		count++
		_, live := v.heartbeats[w]
		if r := v.records[w]; !live && !r.Damaged && (first < 0 || r.Until < v.records[first].Until) {
			first = w
		}
	}
	whose := "workers"
	if n.isProgram {
		whose = "programs"
	}
	if count == 0 {
		return fmt.Sprintf("no number within %s is for %s, since programs have %s: `natsid layout --holders` changes "+
			"that", n.Span, whose, n.holders)
	}
	text := fmt.Sprintf("all %d numbers of %s within %s, where programs have %s", count, whose, n.Span, n.holders)
	if first < 0 {
		return text + "; the first is free when its owner stops"
	}
	return fmt.Sprintf("%s; the first, %d, is free at %s", text, first,
		time.UnixMilli(v.records[first].Until).UTC().Format(time.DateTime))
}
