package simulation_test

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// reports are the processes' reports of the marks that they raise, for provenance.
type reports struct {
	mu  sync.Mutex
	log grants.History
	n   uint64
}

// add adds a load, or a raise.
func (r *reports) add(tag string, l grants.Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	r.log.Whole, r.log.Past = true, r.n
	r.log.Add(&grants.Entry{Who: grants.Who{Entry: r.n}, N: r.n, Loads: map[string][]grants.Load{tag: {l}}})
}

// granted takes in a load.
func (l *life) granted(tag string, loaded segment.Loaded) {
	l.world.reports.add(tag, grants.Load{First: loaded.Start, Last: loaded.End - 1})
}

// raised takes in a write that raised a mark, or may have.
func (l *life) raised(tag string, from, to int64, before segment.Run) {
	l.world.reports.add(tag, grants.Load{Above: max(1, from), First: to, Last: to - 1, Before: before})
}

// checkReports checks that the reports prove for each tag that no ID was granted twice: no write of a mark is missing.
func (w *world) checkReports() {
	if w.broken() || w.conf.loss != kept || w.js.bucket == nil {
		return
	}
	marks := make(map[string]grants.Mark)
	for tag, e := range w.js.bucket.entries {
		var mark struct{ Mark int64 }
		if strings.HasPrefix(tag, buckets.Own) {
			continue
		}
		if err := json.Unmarshal(e.Value, &mark); err != nil {
			w.fail("audit: %v", err)
		}
		marks[tag] = grants.Mark{Raw: mark.Mark, Shown: mark.Mark}
	}
	for _, f := range w.reports.log.Judge(marks) {
		w.fail("the audit finds of %s: %s", f.What, f.Message)
	}
}
