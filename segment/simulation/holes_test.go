package simulation_test

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// A waste is the IDs that one process has reserved of one tag since its last load that succeeded.
type waste struct {
	reserved int64
	loads    int   // under way: one for a tag, and one for a tag of the name that was deleted before, at most
	most     int64 // that one load asked for
	row      int64 // the highest max_id that its loads have read
}

// mark is an entry as the world reads it.
type mark struct{ Mark, Seen, Least int64 }

func markOf(e buckets.Entry) (m mark) {
	_ = json.Unmarshal(e.Value, &m)
	return m
}

// sayTheSame reports whether two entries say the same of a tag, whichever writes they are of.
func sayTheSame(a, b buckets.Entry) bool {
	say := func(e buckets.Entry) (m map[string]any) {
		_ = json.Unmarshal(e.Value, &m)
		delete(m, "token")
		return m
	}
	return reflect.DeepEqual(say(a), say(b))
}

func (l *life) wasteOf(tag string) *waste {
	h := l.wastes[tag]
	if h == nil {
		h = new(waste)
		l.wastes[tag] = h
	}
	return h
}

// reserves notes that a load has raised a mark. However long loads fail, they cost little more than the IDs asked for
// at once: one range that is kept, or ranges that are lost, each at most half as long as the one before. What the row
// had passed when a load read it is no load's: a range that is kept stays above that, though the table lost it since.
func (l *life) reserves(tag string, before, after buckets.Entry) {
	w, h := l.world, l.wasteOf(tag)
	if w.conf.loss != kept {
		return
	}
	old := markOf(before)
	from := max(old.Mark, old.Seen, old.Least, w.db.highest(tag), h.row)
	h.reserved += max(0, markOf(after).Mark-from)
	if h.reserved > 3*h.most {
		w.fail("%s reserves %d IDs of %s since its last load that succeeded, and asked for %d at most",
			l.name(), h.reserved, tag, h.most)
	}
}

// begins notes that a load begins.
func (l *life) begins(tag string, n int64) {
	l.wasteOf(tag).loads++
	l.asks(tag, n)
}

// asks notes how many IDs a load asks for.
func (l *life) asks(tag string, n int64) {
	h := l.wasteOf(tag)
	step := l.world.db.copies[0].byName[tag].Step
	h.most = max(h.most, n, step, 30)
}

// reads notes the max_id that a call reads, if a load makes it.
func (l *life) reads(origin, tag string, maxID int64) {
	if strings.HasPrefix(origin, "load") {
		h := l.wasteOf(tag)
		h.row = max(h.row, maxID)
	}
}

// loaded notes how a load ended.
func (l *life) loaded(tag string, r segment.Range, err error) {
	t := l.world.tags[tag]
	t.top = max(t.top, r.End)
	h := l.wasteOf(tag)
	h.loads--
	if err == nil {
		left := waste{loads: h.loads}
		if left.loads > 0 {
			left.most = h.most
		}
		*h = left
	}
}

// highest returns the highest max_id that a copy of the table has.
func (d *database) highest(tag string) int64 {
	return max(d.copies[0].byName[tag].MaxID, d.copies[1].byName[tag].MaxID)
}
