package simulation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// reports are the processes' reports of the marks that they write, for provenance.
type reports struct {
	mu  sync.Mutex
	of  map[string]*grants.Batch // by life
	odd string                   // a load whose range does not end at its mark
}

// by returns the entry of a life.
func (r *reports) by(l *life) *grants.Batch {
	if r.of == nil {
		r.of = make(map[string]*grants.Batch)
	}
	b := r.of[l.name()]
	if b == nil {
		b = &grants.Batch{Head: grants.Head{Process: l.name(), Instance: l.machine.name, Entry: 1, End: true}}
		r.of[l.name()] = b
	}
	return b
}

// granted takes in a load.
func (l *life) granted(tag string, loaded segment.Loaded) {
	r, w := &l.world.reports, loaded.Write
	r.mu.Lock()
	defer r.mu.Unlock()
	b, g := r.by(l), grants.Load{
		Tag: tag, First: loaded.Start, Last: loaded.End - 1, Before: w.Before, Read: w.Read, Written: w.Written,
		Time: time.Now().UnixMilli(),
	}
	if !w.Replaced.IsZero() {
		g.Replaced = w.Replaced.UnixMilli()
	}
	if loaded.End != w.After {
		r.odd = fmt.Sprintf("%s was granted %v of %s by a write to %d", l.name(), loaded.Range, tag, w.After)
	}
	b.Loads = append(b.Loads, g)
}

// wrote takes in another write.
func (l *life) wrote(tag string, w segment.Write) {
	r := &l.world.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	b, g := r.by(l), grants.Write{
		Tag: tag, How: string(w.How), Before: w.Before, After: w.After, Read: w.Read, Written: w.Written,
		Time: time.Now().UnixMilli(),
	}
	if !w.Replaced.IsZero() {
		g.Replaced = w.Replaced.UnixMilli()
	}
	b.Writes = append(b.Writes, g)
}

// audit checks that the reports prove for each tag that no ID was granted twice: no write of a mark is missing.
func (w *world) audit() {
	if w.broken() || w.conf.loss != kept || w.js.bucket == nil {
		return
	}
	if w.reports.odd != "" {
		w.fail("%s", w.reports.odd)
	}
	a := grants.NewAudit("")
	a.Whole = true
	sequence := uint64(0)
	for _, b := range w.reports.of {
		sequence++
		if err := a.Add(grants.At{Sequence: sequence, Time: w.begin}, b); err != nil {
			w.fail("audit: %v", err)
		}
	}
	a.MarksNow()
	for tag, e := range w.js.bucket.entries {
		var mark struct{ Mark int64 }
		if strings.HasPrefix(tag, buckets.Own) {
			continue
		}
		if err := json.Unmarshal(e.Value, &mark); err != nil {
			w.fail("audit: %v", err)
		}
		if err := a.Point(tag, "", mark.Mark, mark.Mark, e.Revision, e.Created); err != nil {
			w.fail("audit: %v", err)
		}
	}
	err := a.Judge(func(f grants.Finding) { w.fail("the audit finds of %s: %v", f.What, f) }, func(int64) {})
	if err != nil {
		w.fail("audit: %v", err)
	}
}
