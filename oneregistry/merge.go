package oneregistry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// markPage is how many marks one message carries.
	markPage = 100
	// liftTimeout bounds raising them.
	liftTimeout = 20 * time.Second
	// stopAfter is how long a worker that yields waits before it reads the marks, so that the others of its registry
	// have stopped.
	stopAfter = 500 * time.Millisecond
)

// mergeDue reports whether this worker has yet to merge the marks that it knows. Each worker of a registry that yielded
// does so for itself, after it has stopped: another one's merge may have come before its last load.
func (w *Watch) mergeDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.passed && time.Since(w.yielded) >= stopAfter
}

// merge raises all tags of the registry that stays above the marks of this one, which has stopped. It is repeated until
// it succeeds as a whole: to raise twice does no harm.
func (w *Watch) merge(ctx context.Context, v Verdict) {
	spans, failed, err := w.liftAll(ctx, v.Yields)
	if err == nil && len(failed) > 0 && !w.giveUp(len(failed)) {
		err = fmt.Errorf("%d tags could not be raised: %s", len(failed), listFailed(failed))
	}
	if err != nil {
		w.cfg.Log.Warn("the marks of this registry, which has yielded, are not merged yet; trying again",
			"into", v.Yields, "error", err)
		w.mu.Lock()
		w.yielded = time.Now() // a pause before the next attempt
		w.mu.Unlock()
		return
	}
	r, err := w.call(ctx, v.Yields, call{Op: opState})
	if err != nil {
		return
	}
	w.mu.Lock()
	w.passed = true
	both := slices.DeleteFunc(slices.Clone(w.live), func(n int) bool { return !slices.Contains(r.Live, n) })
	w.mu.Unlock()
	if v.Merged {
		return // an earlier merge of this registry was reported by the worker that made it
	}
	w.decide(ctx, Verdict{Yields: v.Yields, Merged: true, Ordered: v.Ordered})
	w.alarm("merged "+v.Yields, "registry %s has yielded to %s, and its marks are merged: no further ID repeats. "+
		"Given twice, at most, while both served: %s; %s", w.id(), v.Yields, listSpans(spans), listNumbers(both))
	if len(failed) > 0 {
		w.alarm("not merged "+v.Yields, "tags of registry %s could not be raised in %s, so their IDs may repeat: "+
			"raise them with `natsid tag update --max-id`: %s", w.id(), v.Yields, listFailed(failed))
	}
}

// mostAttempts is how often a merge is repeated because of tags that cannot be raised, while others can.
const mostAttempts = 5

// giveUp reports whether a merge ends although tags could not be raised: so that an entry that is damaged does not stop
// all others. Where all tags fail, the store is in trouble, and what is tried again may succeed.
func (w *Watch) giveUp(failed int) bool {
	w.attempts++
	return w.attempts > mostAttempts && failed < w.lifted
}

func listFailed(failed map[string]string) string {
	var b strings.Builder
	tags := slices.Sorted(maps.Keys(failed))
	for i, tag := range tags[:min(len(tags), listed)] {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", tag, failed[tag])
	}
	return b.String()
}

func (w *Watch) id() string {
	own, _ := w.mine()
	return own.ID
}

// liftAll passes all marks to the registry that stays, and returns what both may have issued, and what failed.
func (w *Watch) liftAll(ctx context.Context, to string) (spans []Span, failed map[string]string, err error) {
	failed, w.lifted = map[string]string{}, 0
	for after := ""; ; {
		marks, err := w.marks(ctx, after)
		if err != nil || len(marks) == 0 {
			return spans, failed, err
		}
		r, err := w.call(ctx, to, call{Op: opLift, Marks: marks})
		if err != nil {
			return nil, nil, err
		}
		spans = append(spans, r.Spans...)
		maps.Copy(failed, r.Failed)
		w.lifted += len(marks)
		after = marks[len(marks)-1].Tag
	}
}

func (w *Watch) marks(ctx context.Context, after string) ([]Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, liftTimeout)
	defer cancel()
	return w.cfg.Home.Marks(ctx, after, markPage)
}

// listed is how many tags an alarm lists.
const listed = 50

// listSpans writes spans for an operator.
func listSpans(spans []Span) string {
	if len(spans) == 0 {
		return "no segment IDs"
	}
	var b strings.Builder
	for i, s := range spans[:min(len(spans), listed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s [%d, %d)", s.Tag, s.First, s.End)
	}
	if more := len(spans) - listed; more > 0 {
		fmt.Fprintf(&b, ", and %d more tags", more)
	}
	return "of tags " + b.String()
}

func listNumbers(numbers []int) string {
	if len(numbers) == 0 {
		return "no snowflakes, since no worker number is in use in both"
	}
	return fmt.Sprintf("snowflakes of the worker numbers that are in use in both: %v", numbers)
}
