package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/subjects"
)

// plan returns for each tag to be raised the mark before and after.
func (r *resumption) plan(ctx context.Context) ([]lineage.Raise, error) {
	in := r.c.Identity.Incident
	if in != nil && in.Cause == lineage.Second && r.Keep == "" {
		return nil, usage(fmt.Errorf("registries %s and %s serve the same subjects: say which one serves with --keep",
			r.c.Identity.Registry, in.Other))
	}
	var report kvstore.Report
	var found map[string]int64
	var err error
	if r.By > 0 || r.Keep == "" && !r.TableIsWhole {
		if report, err = kvstore.Inspect(ctx, r.streams, r.s.namespace().SegmentBucket()); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Keep != "":
		found, err = r.marksOfOther(ctx)
	case r.TableIsWhole:
		found, err = r.rows(ctx)
	default:
		found, err = r.distant(report)
	}
	if err != nil {
		return nil, err
	}
	to := make(map[string]int64, len(r.c.Marks))
	for tag, mark := range r.c.Marks {
		if to[tag] = mark; r.By > 0 {
			to[tag] = report.Rules[tag].Raise(mark, r.By, time.Now().Add(clocksApart))
		}
	}
	for _, marks := range []map[string]int64{found, r.AtLeast.marks} {
		for tag, mark := range marks {
			to[tag] = max(to[tag], mark)
		}
	}
	return r.o.Raises(r.c, to)
}

// distant returns the marks that no tag can have passed since the restored state.
func (r *resumption) distant(report kvstore.Report) (map[string]int64, error) {
	since := r.Since.Time
	in := r.c.Identity.Incident
	if in != nil && !in.Since().IsZero() && (since.IsZero() || in.Since().Before(since)) {
		since = in.Since() // a worker proved it
	}
	isGiven := r.By > 0 || r.AtLeast.given
	if in != nil && in.Cause == lineage.Lost && !isGiven {
		return nil, usage(errors.New("the marks are lost, and with them how fast tags were loaded: give --by N, N " +
			"above all that any worker which is gone may have loaded of a tag, or --at-least FILE"))
	}
	if since.IsZero() {
		return nil, errSince
	}
	distance, err := lineage.Distance(report.Records, since, time.Now())
	if errors.Is(err, lineage.ErrNoRecord) && isGiven {
		return nil, nil
	}
	if err != nil {
		return nil, usage(fmt.Errorf("%w, so how far tags moved cannot be proposed: give --by N, N above all that was "+
			"loaded of a tag since the state found, or --at-least FILE", err))
	}
	for tag, by := range distance {
		distance[tag] = report.Rules[tag].Raise(r.c.Marks[tag], by, time.Now().Add(clocksApart))
	}
	return distance, nil
}

// clocksApart is by how much clocks of workers may have been ahead of the operator's.
const clocksApart = time.Minute

// openTable opens the table that the marks guard; nil if none is named.
func (r *resumption) openTable(ctx context.Context) (*mysqlstore.Table, error) {
	if r.kind != kvstore.Guarded {
		return nil, nil
	}
	table, err := r.s.openTable(ctx)
	if errors.Is(err, errNoMySQL) {
		return nil, nil
	}
	return table, err
}

// rows returns the marks of the table that the marks guard.
func (r *resumption) rows(ctx context.Context) (map[string]int64, error) {
	if r.table == nil {
		return nil, errNoTable
	}
	rows, err := r.table.AllRows(ctx)
	marks := make(map[string]int64, len(rows))
	for _, row := range rows {
		marks[row.Name] = row.MaxID
	}
	return marks, err
}

// marksOfOther returns the marks of the registry that is not kept.
func (r *resumption) marksOfOther(ctx context.Context) (map[string]int64, error) {
	if own := r.c.Identity.Registry; r.Keep != own {
		return nil, otherKept(r.Keep, own)
	}
	if r.Marks.given {
		return r.Marks.marks, nil
	}
	other := r.other(ctx)
	if other == "" {
		return nil, errors.New("no worker of another registry answers, so it cannot be taken out: connect it, or " +
			"give its marks with --marks FILE")
	}
	return r.ask.Marks(ctx, other)
}

// takeOut takes the other registry out, before the wait: then its marks are final.
func (r *resumption) takeOut(ctx context.Context) error {
	if r.Keep == "" || r.Marks.given {
		return nil
	}
	other := r.other(ctx)
	if err := r.ask.TakeOut(ctx, other, r.Keep); err != nil {
		return fmt.Errorf("registry %s is not taken out: %w", other, err)
	}
	return nil
}

// other returns the other registry.
func (r *resumption) other(ctx context.Context) string {
	if in := r.c.Identity.Incident; in != nil && in.Other != "" {
		return in.Other
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all, _ := r.ask.Notices(ctx, lineage.Notice{Process: rand.Text()}) // an error counts as no registry
	for _, n := range all {
		if n.Registry != "" && n.Registry != r.Keep {
			return n.Registry
		}
	}
	return ""
}

// A marksFile is a file of marks, as `natsid tag list --json` prints them.
type marksFile struct {
	given bool
	marks map[string]int64
}

// UnmarshalText implements [encoding.TextUnmarshaler]: it reads the file of that path.
func (f *marksFile) UnmarshalText(path []byte) error {
	data, err := os.ReadFile(string(path))
	if err != nil {
		return err
	}
	var all []struct {
		Tag   string           `json:"tag"`
		MaxID subjects.Decimal `json:"max_id"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("%s: %w; want the output of `natsid tag list --json`", path, err)
	}
	f.given, f.marks = true, make(map[string]int64)
	for _, t := range all {
		if err := checkTag(t.Tag); err != nil || t.MaxID < 1 {
			return fmt.Errorf("%s: tag %q, max_id %d: want a tag and its mark", path, t.Tag, t.MaxID)
		}
		f.marks[t.Tag] = int64(t.MaxID)
	}
	return nil
}
