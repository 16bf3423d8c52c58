package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/subjects"
)

// useHead names the columns of a tag's step and of [tagUse.rest].
const useHead = "STEP\tLOADS BY\tRECOMMENDED\tIDS/S\tLEFT\tLASTS\tUSED\tWAITS\tERRORS"

func useRow(t subjects.TagInfo) string {
	ahead, worker, use := "-", "-", strings.Repeat("\t-", 8)[1:]
	if t.MarkAhead != nil {
		ahead = fmt.Sprint(int64(*t.MarkAhead))
	}
	if t.Stats != nil {
		u := newUse(t.Tag)
		u.add(*t.Stats)
		worker, use = t.Stats.Worker, u.rest()
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%d\t%s", t.Tag, t.MaxID, ahead, worker, t.Step, use)
}

// printBusiest prints which workers answered, and the sums of their figures.
func printBusiest(out io.Writer, workers []subjects.WorkerStats) {
	var names []string
	uses := map[string]*tagUse{}
	for _, w := range workers {
		names = append(names,
			fmt.Sprintf("%s (%s, %s IDs/s)", w.Instance, numberOf(w.Tags, "tag"), rate(w.IDsPerSecond)))
		for _, t := range w.Busiest {
			if uses[t.Tag] == nil {
				uses[t.Tag] = newUse(t.Tag)
			}
			uses[t.Tag].add(t)
		}
	}
	of := numberOf(len(workers), "worker")
	if len(workers) != 1 {
		of = "each of " + of
	}
	fmt.Fprintf(out, "The %d busiest tags of %s: %s.\n", subjects.MaxBusiest, of, strings.Join(names, ", "))
	fmt.Fprintln(out, "TAG\tWORKERS\t"+useHead)
	for _, u := range inOrder(uses) {
		fmt.Fprintf(out, "%s\t%d/%d\t%d\t%s\n", u.tag, u.workers, len(workers), u.step, u.rest())
	}
}

// inOrder returns the uses, the busiest tag first.
func inOrder(uses map[string]*tagUse) (all []*tagUse) {
	for _, u := range uses {
		all = append(all, u)
	}
	slices.SortFunc(all, func(x, y *tagUse) int {
		return cmp.Or(cmp.Compare(y.speed, x.speed), cmp.Compare(x.tag, y.tag))
	})
	return all
}

// A tagUse is the sum of several workers' reports of one tag.
type tagUse struct {
	tag                     string
	workers                 int
	step, next, recommended int64 // the maximum over the workers
	speed                   subjects.Fraction
	left, waits, errors     int64
	lasts                   subjects.Fraction // the minimum over the workers
	used, size              float64           // IDs of the current ranges
	failing                 bool
}

func newUse(tag string) *tagUse { return &tagUse{tag: tag, lasts: subjects.Fraction(math.Inf(1))} }

func (u *tagUse) add(t subjects.TagStats) {
	u.workers++
	u.step, u.next, u.recommended = max(u.step, t.Step), max(u.next, t.NextStep), max(u.recommended, t.RecommendedStep)
	u.speed += t.IDsPerSecond
	u.left, u.waits, u.errors = u.left+t.Left, u.waits+t.Waits, u.errors+t.Errors
	u.lasts = min(u.lasts, t.SecondsLeft)
	u.failing = u.failing || t.Failing
	if len(t.Ranges) > 0 { // the first is the current one
		r := t.Ranges[0]
		u.used += float64(r.Next - r.First)
		u.size += float64(r.Last-r.First) + 1
	}
}

// rest returns the columns after STEP.
func (u *tagUse) rest() string {
	used, trouble, recommended := "-", "", "-"
	if u.size > 0 {
		used = fmt.Sprintf("%.0f%%", 100*u.used/u.size)
	}
	if u.failing {
		trouble = "!"
	}
	if u.recommended > 0 {
		recommended = fmt.Sprint(u.recommended)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s\t%d\t%d%s",
		u.next, recommended, rate(u.speed), u.left, lasts(u.lasts), used, u.waits, u.errors, trouble)
}

// rate returns a speed with one decimal below 100.
func rate(f subjects.Fraction) string {
	if f < 100 {
		return fmt.Sprintf("%.1f", float64(f))
	}
	return fmt.Sprintf("%.0f", float64(f))
}

// lasts returns a time in its two largest units: 15m20s, 3h5m, 12d.
func lasts(f subjects.Fraction) string {
	const day = 24 * 3600
	switch s := float64(f); {
	case s < 10:
		return fmt.Sprintf("%.1fs", s)
	case s < 3600:
		return (time.Duration(s) * time.Second).String()
	case s < 2*day:
		return strings.TrimSuffix((time.Duration(s/60) * time.Minute).String(), "0s")
	case s < 1000*day:
		return fmt.Sprintf("%.0fd", s/day)
	}
	return "-"
}
