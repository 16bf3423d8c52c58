package fleetview

import (
	"cmp"
	"github.com/natsid/natsid/internal/wire"
	"math"
	"slices"
	"strings"
)

// A Use has the figures of a tag, summed over the workers that have it in memory.
type Use struct {
	Tag     string
	Workers int
	// Step, NextStep and RecommendedStep are the largest values of any worker, in IDs.
	Step, NextStep, RecommendedStep int64
	IDsPerSecond                    wire.Fraction
	Left                            int64         // IDs in memory
	SecondsLeft                     wire.Fraction // until the first worker runs out
	Waiting                         int
	Waits, Errors                   int64
	Failing                         bool // the last load failed on a worker that is asked for the tag

	taken, size float64 // IDs of the current ranges: issued, and all
}

// UseOf returns the use of a tag before any worker's figures are added.
func UseOf(tag string) Use { return Use{Tag: tag, SecondsLeft: wire.Fraction(math.Inf(1))} }

// Add adds the figures of a worker.
func (u *Use) Add(t wire.TagStats) {
	u.Workers++
	u.Step, u.NextStep = max(u.Step, t.Step), max(u.NextStep, t.NextStep)
	u.RecommendedStep = max(u.RecommendedStep, t.RecommendedStep)
	u.IDsPerSecond += t.IDsPerSecond
	u.Left, u.Waiting = u.Left+t.Left, u.Waiting+t.Waiting
	u.Waits, u.Errors = u.Waits+t.Waits, u.Errors+t.Errors
	u.SecondsLeft = min(u.SecondsLeft, t.SecondsLeft)
	u.Failing = u.Failing || t.Failing && (t.IDsPerSecond > 0 || t.Waiting > 0)
	if len(t.Ranges) > 0 { // the first range is the current one
		r := t.Ranges[0]
		u.taken += float64(r.Next - r.First)
		u.size += float64(r.Last-r.First) + 1
	}
}

// Taken returns the share of the current ranges that is issued, 0 to 1; ok is false without ranges.
func (u *Use) Taken() (part float64, ok bool) { return u.taken / u.size, u.size > 0 }

// Busiest returns the busiest tags of the workers that answered, the busiest first.
func (s Snapshot) Busiest() (all []Use) {
	at := make(map[string]int)
	for _, w := range s.Statistics() {
		for _, t := range w.Busiest {
			i, known := at[t.Tag]
			if !known {
				i = len(all)
				at[t.Tag] = i
				all = append(all, UseOf(t.Tag))
			}
			all[i].Add(t)
		}
	}
	slices.SortFunc(all, func(x, y Use) int {
		return cmp.Or(cmp.Compare(y.IDsPerSecond, x.IDsPerSecond), strings.Compare(x.Tag, y.Tag))
	})
	return all
}

// Statistics returns the statistics of the workers that answered.
func (s Snapshot) Statistics() (all []wire.WorkerStats) {
	for _, w := range s.Workers {
		if w.Answered {
			all = append(all, w.Statistics)
		}
	}
	return all
}
