package lineage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// A floors is how far this worker has loaded each tag, or how far the last plan has raised it where that is higher. It
// is safe for concurrent use.
//
// Invariant: floors only rise, so no load of this worker begins below one, whatever the marks say.
type floors struct {
	cfg     *Config
	loaded  Memory // set before the first load
	journal *journal
	ends    atomic.Pointer[map[string]int64] // of the last plan, by tag; nil if there is none
}

// all returns the floors by tag.
func (f *floors) all() map[string]segment.Floor {
	all := f.loaded.Floors()
	if ends := f.ends.Load(); ends != nil {
		for tag, end := range *ends {
			floor := all[tag]
			floor.End = max(floor.End, end)
			all[tag] = floor
		}
	}
	return all
}

// end returns the end of the last plan for a tag, 0 if it has none.
func (f *floors) end(tag string) int64 {
	if ends := f.ends.Load(); ends != nil {
		return (*ends)[tag]
	}
	return 0
}

// page returns the marks of the tags after one, or the floors where they are higher.
func (f *floors) page(ctx context.Context, after string) (marks []Mark, err error) {
	tags, err := f.cfg.Tags.List(ctx, after, marksPage)
	if err != nil {
		return nil, err
	}
	all := f.all()
	for _, t := range tags {
		marks = append(marks, Mark{t.Name, max(t.MaxID, all[t.Name].End)})
	}
	return marks, nil
}

// save puts the floors on disk.
func (f *floors) save() { f.journal.writeFloors(f.all()) }

// lift lifts every mark that is below its floor, and says which there were; "" if none. Each was found by an
// acknowledged compare-and-set, so it is a proof that the bucket went back, unless this worker knew that before. If it
// returns an error, marks may still be below.
func (f *floors) lift(ctx context.Context) (below string, err error) {
	all := f.all()
	if len(all) == 0 {
		return "", nil
	}
	marks, err := marksOf(ctx, f.cfg.Tags)
	if err != nil {
		return "", fmt.Errorf("lineage: the marks cannot be listed: %w", err)
	}
	low := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(tag string) bool {
		return all[tag].End <= max(marks[tag], 1)
	})
	lifted, err := liftAll(ctx, f.cfg.Tags, low, all)
	if len(lifted) == 0 {
		return "", err
	}
	var texts []string
	for _, tag := range lifted[:min(len(lifted), 10)] {
		texts = append(texts, fmt.Sprintf("%s at %d, loaded up to %d", tag, marks[tag], all[tag].End))
	}
	if more := len(lifted) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	below = "marks were below what this worker loaded: " + strings.Join(texts, "; ")
	f.cfg.Log.Warn("marks are lifted to what this worker loaded", "tags", len(lifted), "marks", below)
	return below, err
}

// take makes the ends of a plan floors of this worker. A plan that is gone is a [finding], since its parts are written
// before the identity names it.
//
// Law: what a resume raised may have been issued from since. So no load of a worker that read the plan begins below its
// ends, whatever the marks say.
func (f *floors) take(ctx context.Context, p *Plan) error {
	if p == nil {
		return nil
	}
	parts, err := p.parts(ctx, f.cfg.Bucket)
	if err != nil {
		return err
	}
	raises, err := p.read(parts)
	if err != nil {
		for _, e := range parts { // a compare-and-set of each part as it was read proves what was read
			if e.Revision == 0 {
				_, err = f.cfg.Bucket.Create(ctx, e.Key, nil)
			} else {
				_, err = f.cfg.Bucket.Update(ctx, e.Key, e.Value, e.Revision)
			}
			if isRefused(err) {
				return errNewerRead
			}
			if err != nil {
				return fmt.Errorf("lineage: part %s of a plan cannot be compared: %w", e.Key, err)
			}
		}
		return &finding{cause: WentBack, why: errNoPlan.Error()}
	}
	ends := endsOf(raises)
	f.ends.Store(&ends)
	return nil
}

func endsOf(raises []Raise) map[string]int64 {
	ends := make(map[string]int64, len(raises))
	for _, r := range raises {
		ends[r.Tag] = r.To
	}
	return ends
}

// parts returns the entries of a plan's parts. One that is missing has the revision 0.
func (p Plan) parts(ctx context.Context, b Bucket) (parts []buckets.Entry, err error) {
	for n := range p.Parts {
		key := planKey(p.ID, n)
		e, err := b.Get(ctx, key)
		if err != nil && !errors.Is(err, buckets.ErrNoKey) {
			return nil, fmt.Errorf("lineage: part %d of plan %s cannot be read: %w", n, p.ID, err)
		}
		e.Key = key
		parts = append(parts, e)
	}
	return parts, nil
}

func marksOf(ctx context.Context, tags Tags) (map[string]int64, error) {
	marks := make(map[string]int64)
	for after := ""; ; {
		page, err := tags.List(ctx, after, 1000)
		if err != nil || len(page) == 0 {
			return marks, err
		}
		for _, t := range page {
			after, marks[t.Name] = t.Name, t.MaxID
		}
	}
}

// lifts is how many marks are lifted at once. It is a variable for simulations, where one goroutine follows a seed.
var lifts = 8

// liftAll lifts the marks of some tags, and returns those that were lower.
func liftAll(
	ctx context.Context, tags Tags, low []string, floors map[string]segment.Floor,
) (lifted []string, err error) {
	var mu sync.Mutex
	var workers sync.WaitGroup
	faults := make([]error, lifts)
	for n := range min(lifts, len(low)) {
		workers.Go(func() {
			for k := n; k < len(low) && faults[n] == nil; k += lifts {
				var raised bool
				if raised, faults[n] = tags.Lift(ctx, low[k], floors[low[k]]); raised {
					mu.Lock()
					lifted = append(lifted, low[k])
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	slices.Sort(lifted)
	return lifted, errors.Join(faults...)
}
