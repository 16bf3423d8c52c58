package lineage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A floors is how far this worker has loaded each tag, and in which era. It is safe for concurrent use.
//
// Invariant: floors only rise, so no load of this worker begins below one, whatever the marks say.
type floors struct {
	cfg     *Config
	loaded  Memory // set before the first load
	journal *journal
}

// save puts the floors on disk.
func (f *floors) save() { f.journal.writeFloors(f.loaded.Floors()) }

// highest returns the highest ID that this worker loaded of a tag without a last number.
func (f *floors) highest() (end int64) {
	for _, floor := range f.loaded.Floors() {
		if floor.Rules == nil || !floor.Rules.Bounded() {
			end = max(end, floor.End)
		}
	}
	return end
}

// shortfall returns by how much the mark of a tag is below its floor, 0 if it is not.
//
// Law: where it is, the mark went back. That of a tag with a last number proves nothing: an operator may have decided
// about it.
func shortfall(t segment.Tag, floors map[string]segment.Floor) int64 {
	f := floors[t.Name]
	if t.MaxID < 1 || t.Undecided || t.Rules.Bounded() || f.Rules != nil && f.Rules.Bounded() {
		return 0 // the first: its entry is damaged
	}
	return max(0, f.End-t.MaxID)
}

// low returns a finding if marks are below their floors, nil if none is.
//
// Law: a listing is no proof, since a leader that was deposed shows old entries. The acknowledged write of an entry as
// it was read is one: so the entry that is the furthest below is written again.
func (f *floors) low(ctx context.Context) (*finding, error) {
	all := f.loaded.Floors()
	if len(all) == 0 {
		return nil, nil
	}
	tags, err := f.cfg.Tags.Marks(ctx)
	if err != nil {
		return nil, fmt.Errorf("lineage: the marks cannot be listed: %w", err)
	}
	tags = slices.DeleteFunc(tags, func(t segment.Tag) bool { return shortfall(t, all) == 0 })
	if len(tags) == 0 {
		return nil, nil
	}
	slices.SortFunc(tags, func(a, b segment.Tag) int { return cmp.Compare(shortfall(b, all), shortfall(a, all)) })
	now, err := f.cfg.Tags.Confirm(ctx, tags[0].Name)
	if err != nil {
		return nil, fmt.Errorf("lineage: the mark of tag %s cannot be confirmed: %w", tags[0].Name, err)
	}
	need := shortfall(now, all)
	if need == 0 {
		return nil, errNewerRead
	}
	var texts []string
	for _, t := range tags[:min(len(tags), 10)] {
		texts = append(texts, fmt.Sprintf("%s at %d, loaded up to %d", t.Name, t.MaxID, all[t.Name].End))
	}
	if more := len(tags) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	why := "marks are below what this worker loaded: " + strings.Join(texts, "; ")
	return &finding{cause: era.WentBack, why: why, need: need}, nil
}

// restore gives the bucket what it lacks of what this worker knows: see [Tags].
//
// Law: an entry that is written again has the floor's own era. So a resume raises it as it raises others, above what
// other workers loaded of the tag in that era.
func (f *floors) restore(ctx context.Context) error {
	all := f.loaded.Floors()
	if len(all) == 0 {
		return nil
	}
	tags, err := f.cfg.Tags.Marks(ctx)
	if err != nil {
		return fmt.Errorf("lineage: the marks cannot be listed: %w", err)
	}
	var due []string
	have := make(map[string]segment.Tag, len(tags))
	for _, t := range tags {
		have[t.Name] = t
	}
	for tag, floor := range all {
		t, ok := have[tag]
		switch {
		case floor.Rules == nil || floor.End < 1 || ok && t.MaxID < 1: // the last: its entry is damaged
		case !ok, (t.Undecided || t.Rules.Bounded()) && t.MaxID < floor.End,
			t.Rules == segment.Rules{} && *floor.Rules != segment.Rules{}:
			due = append(due, tag)
		}
	}
	slices.Sort(due)
	return each(due, func(tag string) error {
		if err := f.cfg.Tags.Restore(ctx, tag, all[tag]); err != nil {
			return fmt.Errorf("lineage: tag %s cannot be written again: %w", tag, err)
		}
		return nil
	})
}

// atOnce is how many entries are written at once. It is a variable for simulations, where one goroutine follows a seed.
var atOnce = 8

// each calls f for all tags, and returns the first error.
func each(tags []string, f func(tag string) error) error {
	var workers sync.WaitGroup
	faults := make([]error, atOnce)
	for n := range min(atOnce, len(tags)) {
		workers.Go(func() {
			for k := n; k < len(tags) && faults[n] == nil; k += atOnce {
				faults[n] = f(tags[k])
			}
		})
	}
	workers.Wait()
	return cmp.Or(faults...)
}
