package grants

import (
	"cmp"
	"fmt"
	"slices"
)

// A chain follows the writes of one tag's mark, in the order of their revisions. Each row has the mark at the
// revision that it read; a write also has the mark that it wrote.
//
// Law: a compare-and-set replaces one revision. So if the second of two writes read the revision that the first has
// written, there was no write between them. The IDs from the mark that a write replaced to the mark that it wrote are
// its grant, or are granted by no write. If the writes of a tag form a chain without a gap, its grants share no ID,
// and there are no others.
//
// In a gap there was a write that no entry records. If the mark rose over the gap, and a worker was killed about then
// before it wrote down its last loads, these were loads: each of the IDs between the marks was in one. If the mark
// did not rise, it may have been put back, and any ID above may be in an unrecorded load.
//
// Where the marks went back, an era ends. The first write of the next era reads a mark that was put back; but the mark
// is higher in that era, by more than was loaded, on the assumption of `natsid resume`. An audit checks that no load of
// the era begins below one that is recorded.
//
// A chain does not detect a mark that was put back in a gap over which it rose all the same, by loads of workers that
// were killed before they wrote these down.
type chain struct {
	audit *Audit
	tag   uint32
	era   uint32 // of the last row

	rows     int  // grants and writes of the tag
	isKnown  bool // mark and revision are known
	settled  bool // the present mark was compared
	wentBack bool // the present mark is older than an entry from before it was read

	mark     int64
	revision uint64  // of the mark; 0 for a tag that has none
	above    uint64  // lower bound of an unknown revision; 0 where it is known
	present  row     // the present mark, once it was compared
	at       int64   // when the mark had this value, Unix ms
	last     row     // the write that made the mark
	may      []point // the marks of writes of this revision whose outcome is unknown

	highest    int64 // highest granted ID
	resumed    bool  // it has writes after a resume, or a mark from before one that was put back
	wasPutBack bool  // the marks of the era do not join those of the one before, and nothing was loaded in it yet
	crossed    bool  // a grant begins below the end of another: they may share IDs
	held       int64 // see [Audit.Held]
	faults     int
	why        string // the first fault
}

// A point is a mark, and a time at which it was written or known, Unix ms.
type point struct{ mark, at int64 }

// mostMay bounds the writes of one revision whose outcome is unknown. Beyond it a gap may look unexplained.
const mostMay = 1000

// pass takes the next row of the tag.
func (c *chain) pass(r row) {
	if r.kind != aDiscard && r.era != c.era {
		c.next(r)
	}
	switch {
	case r.kind == aDiscard:
		return
	case r.hasLanded() && c.isSameWrite(r): // its write failed at first, and was granted later
	default:
		c.observe(r)
		c.follow(r)
	}
	if r.kind == aLoad {
		c.crossed = c.crossed || r.first <= c.highest
		c.highest = max(c.highest, r.last)
	}
	if r.kind != thePoint {
		c.rows++
	}
}

// next begins an era with its first row.
func (c *chain) next(r row) {
	isFirst := c.rows == 0
	c.era = r.era
	joins := c.isKnown && c.above == 0 && r.read == c.revision && r.before == c.mark
	switch {
	case r.era == c.audit.founding: // 0 if it is not known
	case r.kind == thePoint && joins: // nothing was written since the resume
	default:
		c.resumed = true
	}
	if isFirst || joins { // the marks stayed, or went back together with the entries
		return
	}
	c.isKnown, c.settled, c.wentBack, c.last, c.may = false, false, false, row{}, nil
	c.wasPutBack = true
}

// isSameWrite reports whether a row is the last write again.
func (c *chain) isSameWrite(r row) bool {
	return c.last.hasLanded() && r.process == c.last.process && r.read == c.last.read && r.written == c.last.written &&
		r.before == c.last.before && r.last == c.last.last
}

// observe compares the mark and revision that a row has read with the chain.
func (c *chain) observe(r row) {
	switch {
	case c.isKnown && c.above == 0 && r.read == c.revision && r.before == c.mark:
		return
	case c.isKnown && c.above > 0 && r.read > c.above && r.shows(point{c.mark, c.at}):
	case c.isKnown && c.above == 0 && r.read > c.revision && slices.ContainsFunc(c.may, r.shows):
	case !c.isKnown || c.revision == 0 && c.above == 0:
		c.begin(r)
	default:
		c.gap(r)
	}
	c.isKnown, c.revision, c.above, c.mark, c.may = true, r.read, 0, r.before, nil
	c.at = cmp.Or(r.replaced, r.time)
}

// landing is how long after its report a write of unknown outcome may land.
const landing = 60_000

// shows reports whether a row has read the mark p of a write whose revision is unknown. An entry that was written
// much later is another write, with the same mark.
func (r *row) shows(p point) bool { return r.before == p.mark && r.replaced <= p.at+landing }

// begin begins the chain of a tag: with the creation of the tag, the first recorded write of an older tag, or the mark
// that a resume found.
func (c *chain) begin(r row) {
	began := c.audit.eraBegan[r.era]
	switch {
	case r.read == 0, c.audit.isForgotten(r):
	case c.resumed && (r.replaced <= began+askew || c.audit.killed(began, r.replaced)):
	default:
		c.doubt(r.before, "the write of revision %d is missing, though writes were written down by then", r.read)
	}
}

// gap judges the gap between the last write and the revision that a row has read.
func (c *chain) gap(r row) {
	switch {
	case r.read == 0:
		c.doubt(r.last+1, "the mark was %d, and then the tag was created as if it had none", c.mark)
	case r.read <= max(c.revision, c.above):
		c.doubt(min(r.before, c.mark), "revision %d was replaced twice, or had two marks: the marks went back", r.read)
	case r.before < c.mark:
		c.doubt(r.before, "the mark was put back from %d to %d, which it was at revision %d", c.mark, r.before, r.read)
	case r.replaced != 0 && c.audit.isForgotten(r):
	case r.before == c.mark:
		c.doubt(c.mark, "a write before revision %d is missing, and the mark is %d before and after it: it may have "+
			"been put back", r.read, c.mark)
	case c.audit.killed(c.at, cmp.Or(r.replaced, r.time)):
		c.held += r.before - c.mark
	default:
		c.missing(c.mark, r.before-1, "a write before revision %d is missing, and no worker was killed about then",
			r.read)
	}
}

// follow takes the mark that a row wrote.
func (c *chain) follow(r row) {
	switch {
	case r.kind == thePoint:
		c.settled, c.present = true, r
	case !r.hasLanded():
		if len(c.may) < mostMay {
			c.may = append(c.may, point{r.last + 1, r.time})
		}
	default:
		if p := c.present; c.settled && !c.wentBack && r.sequence <= c.audit.past {
			c.wentBack = true
			c.doubt(p.before, "the mark is %d now, at revision %d, and process %s had written a later one, %d: the "+
				"marks went back", p.before, p.read, c.audit.list[r.process].id, r.last+1)
		}
		if c.wasPutBack && r.kind == aLoad {
			c.wasPutBack = false
			if r.first <= c.highest {
				c.doubt(r.first, "it was loaded after a resume, which began too low: IDs up to %d were granted before",
					c.highest)
			}
		}
		c.land(r)
	}
}

// land takes a write that has landed. A write whose revision is unknown landed by the time of its first report.
func (c *chain) land(r row) {
	may := c.may
	c.mark, c.revision, c.above, c.at, c.last, c.may = r.last+1, r.written, 0, r.time, r, nil
	if r.written != 0 {
		return
	}
	c.above = max(r.read, 1)
	for _, p := range may {
		if p.mark == c.mark {
			c.at = min(c.at, p.at)
		}
	}
}

// end ends the chain of a tag.
func (c *chain) end() {
	switch {
	case c.isKnown && c.faults == 0 && c.highest >= max(c.mark, c.present.first, 1):
		c.doubt(c.mark, "the mark is %d, and IDs up to %d were granted", c.mark, c.highest)
	case c.settled, c.isKnown && c.revision == 0 && c.above == 0: // it never had a mark
	case c.audit.Unread != "":
		c.doubt(c.highest+1, "the present mark is not known: %s", c.audit.Unread)
	default:
		c.doubt(max(c.mark, c.highest+1), "the tag has no mark any more")
	}
}

// doubt adds a fault: IDs from an ID on may be in an unrecorded load.
func (c *chain) doubt(from int64, why string, args ...any) {
	c.fault(fmt.Sprintf("IDs from %d on may be in a load that nobody wrote down: ", from), why, args...)
}

// missing adds a fault: these IDs are in no grant.
func (c *chain) missing(first, last int64, why string, args ...any) {
	c.fault(fmt.Sprintf("IDs %d-%d are in no grant: ", first, last), why, args...)
}

func (c *chain) fault(what, why string, args ...any) {
	if c.faults++; c.faults == 1 {
		c.why = what + fmt.Sprintf(why, args...)
	}
}

// finding returns the unproven finding of the tag.
func (c *chain) finding() Finding {
	f := Finding{Kind: NotProven, What: "tag " + c.audit.names[c.tag], Why: c.why}
	if c.faults > 1 {
		f.Why += fmt.Sprintf("; and %d more such places", c.faults-1)
	}
	return f
}

// isForgotten reports whether the revision that a row has read was written before the first entry, and older entries
// are gone.
func (a *Audit) isForgotten(r row) bool { return r.replaced <= a.began && (!a.Whole || a.cut) }

// A worker that is killed may have loaded after its last entry, and counts as alive until its last window ends, or
// for unheard. Clocks and entries differ by askew at most.
const (
	unheard = 5 * 60_000
	askew   = 10_000
)

// killed reports whether a process may have been killed between two times, Unix ms, before it wrote down its last
// loads. A live process counts, too: it may not have written them down yet.
func (a *Audit) killed(from, until int64) bool {
	return slices.ContainsFunc(a.list, func(p *process) bool {
		lived := max(p.until, p.lastAt+unheard)
		return !p.ended && p.lastAt <= until+askew && lived >= from-askew
	})
}
