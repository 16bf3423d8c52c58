package simulation_test

import (
	"errors"
	"strings"
	"time"

	"github.com/natsid/natsid/segment"
)

// serves checks that, soon after all was repaired, each worker serves each tag that is there.
func (w *world) serves() {
	w.quiet = true
	bound := 2*w.conf.config.Poll + 10*time.Second
	w.run(time.Now().Add(bound), w.broken)
	for number, r := range w.waiting {
		if !r.life.isDead() {
			w.fail("%s has not answered request %d", r.life.name(), number)
		}
	}
	for _, m := range w.machines {
		for _, name := range w.names {
			if w.broken() {
				return
			}
			w.servesOne(m.life, name, bound)
		}
	}
}

func (w *world) servesOne(l *life, name string, bound time.Duration) {
	var r *request
	for try := range 10 { // of two workers that load at once one may be late
		if try == 5 {
			// What was passed on may have found no tag just before it was created on first use, and the news was lost.
			if !w.mayPassOn() {
				break
			}
			w.run(time.Now().Add(bound), w.broken) // until the next poll
		}
		r = nil // that of the try before has been answered
		w.after(0, func() { r = l.ask(name, 1) })
		end := time.Now().Add(w.conf.config.Deadline + time.Millisecond)
		w.run(end, func() bool { return r != nil && r.answered || w.broken() })
		if r.served || w.broken() {
			return
		}
		if w.refusedRightly(r, name) {
			return
		}
	}
	w.fail("%v after all was repaired %s does not serve %s: answered %t, %v", bound, l.name(), name, r.answered, r.err)
}

// refusedRightly reports whether a tag cannot be served.
func (w *world) refusedRightly(r *request, name string) bool {
	row, ok := w.db.copies[0].byName[name]
	table := w.conf.kind != marksAlone
	switch {
	case !r.answered:
		return false
	case errors.Is(r.err, segment.ErrExhausted):
		return table && w.conf.limit < 1<<62
	case errors.Is(r.err, segment.ErrBadRow):
		return table && ok && row.Step < 1
	case errors.Is(r.err, segment.ErrUndecided): // max_id cannot hold the offset
		return table && w.conf.loss != kept && w.conf.limit < 1<<62
	case errors.Is(r.err, segment.ErrDisabled):
		return true
	case errors.Is(r.err, segment.ErrUnknownTag):
		entry := string(w.js.bucket.entries[name].Value)
		isUnmade := strings.Contains(entry, claimed) && !strings.Contains(entry, seen) // its creation was cut off
		return w.conf.loss != kept || table && (!ok || isUnmade) || !table && entry == ""
	}
	return false
}
