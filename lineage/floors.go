package lineage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
)

// lifts is how many marks are lifted at once. It is a variable for simulations, where one goroutine follows a seed.
var lifts = 8

// floors returns how far this worker has loaded each tag, and the ends of the last plan where they are higher.
func (w *Member) floors() map[string]segment.Floor {
	floors := w.loaded.Floors()
	if ends := w.ends.Load(); ends != nil {
		for tag, end := range *ends {
			if f := floors[tag]; f.End < end {
				floors[tag] = segment.Floor{End: end, Step: f.Step, Live: f.Live}
			}
		}
	}
	return floors
}

// end returns the end of the last plan for a tag, 0 if it has none.
func (w *Member) end(tag string) int64 {
	if ends := w.ends.Load(); ends != nil {
		return (*ends)[tag]
	}
	return 0
}

// lift lifts every mark that is below this worker's floor, and says which there were; "" if none. Each was found by an
// acknowledged compare-and-set, so it is a proof that the bucket went back, unless this worker knew that before.
func (w *Member) lift(ctx context.Context) (below string, err error) {
	floors := w.floors()
	if len(floors) == 0 {
		return "", nil
	}
	marks, err := marksOf(ctx, w.cfg.Tags)
	if err != nil {
		return "", fmt.Errorf("lineage: the marks cannot be listed: %w", err)
	}
	low := slices.DeleteFunc(slices.Sorted(maps.Keys(floors)), func(tag string) bool {
		return floors[tag].End <= max(marks[tag], 1)
	})
	lifted, err := liftAll(ctx, w.cfg.Tags, low, floors)
	if len(lifted) == 0 {
		return "", err
	}
	var texts []string
	for _, tag := range lifted[:min(len(lifted), 10)] {
		texts = append(texts, fmt.Sprintf("%s at %d, loaded up to %d", tag, marks[tag], floors[tag].End))
	}
	if more := len(lifted) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	below = "marks were below what this worker loaded: " + strings.Join(texts, "; ")
	w.cfg.Log.Warn("marks are lifted to what this worker loaded", "tags", len(lifted), "marks", below)
	return below, err
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

// takeEnds makes the ends of the last plan floors of this worker.
//
// Law: what a resume raised may have been issued from since. So no load of a worker that read the plan begins below its
// ends, whatever the marks say.
func (w *Member) takeEnds(ctx context.Context, v *view) error {
	if v.id.Plan == nil {
		return nil
	}
	raises, err := readPlan(ctx, w.cfg.Bucket, *v.id.Plan)
	if errors.Is(err, errNoPlan) {
		if stale := w.proveNoPlan(ctx, *v.id.Plan); stale != nil {
			return stale
		}
	}
	if err != nil {
		return err
	}
	ends := make(map[string]int64, len(raises))
	for _, r := range raises {
		ends[r.Tag] = r.To
	}
	w.ends.Store(&ends)
	return nil
}

// proveNoPlan proves that a plan is not there, by a compare-and-set of each part as it was read. It returns nil then.
func (w *Member) proveNoPlan(ctx context.Context, p Plan) error {
	var parts [][]byte
	for n := range p.Parts {
		key := planKey(p.ID, n)
		e, err := w.cfg.Bucket.Get(ctx, key)
		switch {
		case err == nil:
			_, err = w.cfg.Bucket.Update(ctx, key, e.Value, e.Revision)
		case errors.Is(err, buckets.ErrNoKey):
			_, err = w.cfg.Bucket.Create(ctx, key, nil)
		}
		if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
			return errNewerRead
		}
		if err != nil {
			return fmt.Errorf("lineage: part %d of plan %s cannot be compared: %w", n, p.ID, err)
		}
		parts = append(parts, e.Value)
	}
	if _, err := p.read(parts); err == nil {
		return errNewerRead
	}
	return nil
}

// readPlan reads the raises of a plan, or returns [errNoPlan].
func readPlan(ctx context.Context, b interface {
	Get(ctx context.Context, key string) (buckets.Entry, error)
}, p Plan) ([]Raise, error) {
	var parts [][]byte
	for n := range p.Parts {
		e, err := b.Get(ctx, planKey(p.ID, n))
		if errors.Is(err, buckets.ErrNoKey) {
			return nil, errNoPlan
		}
		if err != nil {
			return nil, fmt.Errorf("lineage: part %d of plan %s cannot be read: %w", n, p.ID, err)
		}
		parts = append(parts, e.Value)
	}
	return p.read(parts)
}
