package worker

import (
	"time"

	"github.com/natsid/natsid/subjects"
)

// Hasten makes workers gather evidence that many times as fast.
func Hasten(times int) {
	for _, d := range []*time.Duration{
		&usualPace.probeAfter, &usualPace.probeEvery, &usualPace.askAfter, &usualPace.askEvery, &usualPace.silence,
	} {
		*d /= time.Duration(times)
	}
}

// RefuseProbes makes the worker believe that it may not publish on subjects of requests.
func (w *Worker) RefuseProbes(ns subjects.Namespace) {
	w.rights.mu.Lock()
	defer w.rights.mu.Unlock()
	w.rights.pubs[ns.SegmentProbe()], w.rights.pubs[ns.Snowflake()] = true, true
}

// WakesAt returns after how many requests a worker at rest is woken; 0 for one that is not at rest.
func (w *Worker) WakesAt() int64 { return w.groups[0].endpoints[0].counts.wakesAt.Load() }
