package worker

import (
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A worker that gets more requests than it can answer would answer all of them late. So it leaves the queue group when
// its lag reaches leaveAt, and joins again below joinAt, before it runs out of requests. Both are lengthened by a
// random time of up to a quarter, so that the workers of a fleet neither leave nor join together.
//
// Requests wait in the server and in this process. The answer to a ping comes behind those in the server; when it is
// there, those in this process are counted. A mark is set behind both.
const (
	leaveAt = 120 * time.Millisecond
	joinAt  = 40 * time.Millisecond
	// A machine that paused for a moment is late, too, but its worker need not leave. So a group leaves only if at
	// least few requests wait, and their number times the lag is at least crowd.
	few   = 32
	crowd = 256 * 100 * time.Millisecond
	// The lag is measured only under load: while at least busy requests wait, or that many arrive within markEvery.
	busy      = 16
	markEvery = 20 * time.Millisecond
)

// A lag measures how late the requests of a group are answered. Only the membership's goroutine uses it.
type lag struct {
	marks []mark        // those not reached yet, the oldest first
	last  time.Duration // from when the last mark was set until it was reached

	seen   int64 // requests that had arrived or waited at the last look
	isBusy bool  // at least busy requests came since the look before, or wait
}

// look updates isBusy, given how many requests have arrived at their handlers, and how many wait for them.
func (l *lag) look(arrived, waiting int64) {
	came := arrived + waiting
	l.isBusy, l.seen = came-l.seen >= busy || waiting >= busy, came
	if !l.isBusy && len(l.marks) == 0 {
		l.last = 0
	}
}

// A mark is a place in the queue of requests, behind all requests that had come when it was set.
type mark struct {
	ping    proof         // its answer comes behind the requests that wait in the server
	set     time.Duration // when the mark was set
	arrived int64         // requests of the group that had arrived when the mark was set
	until   int64         // requests of the group before the mark; -1 until the ping is answered
}

// mark sets a mark with a ping that has just been sent.
func (l *lag) mark(now time.Duration, ping proof, arrived int64) {
	l.marks = append(l.marks, mark{ping: ping, set: now, arrived: arrived, until: -1})
}

// see removes the marks that were reached, and returns the last of them. answered is the last ping that was answered;
// arrived counts the requests that have reached their handlers, waiting those that wait for them in this process.
func (l *lag) see(now time.Duration, answered proof, arrived, waiting int64) (reached mark, any bool) {
	n := 0
	for i := range l.marks {
		m := &l.marks[i]
		if m.ping > answered {
			break
		}
		if m.until < 0 {
			m.until = arrived + waiting
		}
		if waiting == 0 || arrived >= m.until {
			n = i + 1
		}
	}
	if n == 0 {
		return mark{}, false
	}
	reached = l.marks[n-1]
	l.marks, l.last = slices.Delete(l.marks, 0, n), now-reached.set
	return reached, true
}

// isCrowd reports whether requests are late because too many wait, not because the machine paused.
func isCrowd(late time.Duration, waiting int64) bool {
	return waiting >= few && late*time.Duration(waiting) >= crowd
}

// of returns the lag: the age of the oldest mark, or how long the last mark took if that is longer.
func (l *lag) of(now time.Duration) time.Duration {
	if len(l.marks) > 0 {
		return max(l.last, now-l.marks[0].set)
	}
	return l.last
}

// An overload is a period in which a group is out, or leaves again and again, because it answers late. The zero value
// is no overload.
type overload struct {
	on          bool // the group is away now
	since       time.Duration
	first, last time.Duration // when the group first left, and was last away
	times       int           // how often the group left; 0 while there is no overload
	raised      bool          // the alarm was raised
}

const (
	// calm is how long after the group was last away an overload ends.
	calm = 10 * time.Second
	// lasting is how long an overload must last to raise the alarm, and how long the mode keeps its trouble after the
	// group was last out.
	lasting = time.Second
)

// leave records that the group leaves, and reports whether an overload begins.
func (o *overload) leave(now time.Duration) (begins bool) {
	begins = o.times == 0
	if begins {
		o.first = now
	}
	o.on, o.since, o.last = true, now, now
	o.times++
	return begins
}

func (o *overload) isTrouble(now time.Duration) bool { return o.times > 0 && now-o.last < lasting }

// pass updates the overload at the time now. alarm says that the alarm must be raised now, over that the overload has
// ended.
func (o *overload) pass(now time.Duration) (alarm, over bool) {
	if o.times == 0 {
		return false, false
	}
	if o.on {
		o.last = now
	}
	alarm = !o.raised && o.last-o.first >= lasting
	o.raised = o.raised || alarm
	if over = now-o.last >= calm; over {
		*o = overload{}
	}
	return alarm, over
}

// jittered returns a random time from d to 1.25 d.
func jittered(d time.Duration) time.Duration { return d + jitter.UpTo(d/4) }
