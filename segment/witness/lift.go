package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/natsid/natsid/segment"
)

// lifts is how many marks are lifted at once.
const lifts = 8

// A lowTag is a tag whose mark, 0 if it is missing, is below this worker's floor.
type lowTag struct {
	name  string
	mark  int64
	floor segment.Floor
}

// low returns the tags whose marks are below this worker's floors, in order.
func (w *Witness) low(ctx context.Context) (low []lowTag, err error) {
	floors := w.memory.Floors()
	marks := make(map[string]int64)
	for after, more := "", true; more; {
		page, err := w.cfg.Store.List(ctx, after, 1000)
		if err != nil {
			return nil, fmt.Errorf("witness: the marks cannot be listed: %w", err)
		}
		for _, t := range page {
			after, marks[t.Name] = t.Name, t.MaxID
		}
		more = len(page) > 0
	}
	for _, tag := range slices.Sorted(maps.Keys(floors)) {
		if f := floors[tag]; f.End > marks[tag] {
			low = append(low, lowTag{tag, marks[tag], f})
		}
	}
	return low, nil
}

// lows names some tags and how far they went back, for an operator.
func lows(low []lowTag) string {
	const some = 10
	var texts []string
	for _, l := range low[:min(some, len(low))] {
		texts = append(texts, fmt.Sprintf("%s at %d, loaded up to %d", l.name, l.mark, l.floor.End))
	}
	if len(low) > some {
		texts = append(texts, fmt.Sprintf("and %d more", len(low)-some))
	}
	return strings.Join(texts, "; ")
}

// liftAll lifts every mark that is below this worker's floor. With live, missing tags that are in memory are served on;
// otherwise they wait for their operator.
func (w *Witness) liftAll(ctx context.Context, live bool) error {
	low, err := w.low(ctx)
	if err != nil || len(low) == 0 {
		return err
	}
	w.cfg.Log.Warn("marks are below what this worker loaded; they are raised to it", "count", len(low),
		"tags", lows(low))
	return w.liftThese(ctx, low, live)
}

func (w *Witness) liftThese(ctx context.Context, low []lowTag, live bool) error {
	var workers sync.WaitGroup
	faults := make([]error, lifts)
	for n := range lifts {
		workers.Go(func() {
			for k := n; k < len(low) && faults[n] == nil; k += lifts {
				low[k].floor.Live = low[k].floor.Live && live
				faults[n] = w.cfg.Store.Lift(ctx, low[k].name, low[k].floor)
			}
		})
	}
	workers.Wait()
	return errors.Join(faults...)
}

// liftStrange lifts the marks of a bucket that took the place of another. What this worker loaded from the other one is
// a lower bound, and no more: others may have loaded beyond. So missing tags wait for their operator.
func (w *Witness) liftStrange(ctx context.Context) error {
	if !w.strange {
		return nil
	}
	err := w.liftAll(ctx, false)
	w.strange = err != nil
	return err
}
