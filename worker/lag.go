package worker

import (
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A worker that is offered more than it can answer would answer all of it late. It
// leaves the queue group instead while requests wait for longer than leaveAt, and joins
// below joinAt, so that it never stands idle. Both are jittered by up to a quarter:
// workers of a fleet neither leave nor join together.
//
// What waits may lie in the server and in this process. The answer to a ping comes
// behind the former, and then the latter is counted: a mark is behind both.
const (
	leaveAt = 120 * time.Millisecond
	joinAt  = 40 * time.Millisecond
	// A machine that stood still for a moment is late too, with nothing to get rid of:
	// at least few requests wait, and so many that they are late together by crowd.
	few   = 32
	crowd = 256 * 100 * time.Millisecond
	// The lag is measured while at least busy requests arrive within markEvery, or wait.
	busy      = 16
	markEvery = 20 * time.Millisecond
)

// A lag is how late the requests of a group are answered. Only the goroutine of
// [Worker.Run] uses it.
type lag struct {
	marks []mark        // that requests are still ahead of, the oldest first
	last  time.Duration // what the last mark took

	seen   int64 // requests that had arrived or waited at the last look
	isBusy bool  // many came since the look before
}

// look decides whether the lag is worth a mark, given how many requests have arrived and wait in this process.
func (l *lag) look(arrived, waiting int64) {
	came := arrived + waiting
	l.isBusy, l.seen = came-l.seen >= busy || waiting >= busy, came
	if !l.isBusy && len(l.marks) == 0 {
		l.last = 0
	}
}

// A mark is behind all requests that had come when it was set.
type mark struct {
	ping    proof         // it comes behind what waits in the server
	set     time.Duration // when the mark was set
	arrived int64         // requests of the group by then
	until   int64         // requests of the group before the mark; -1 until the ping is answered
}

// mark sets a mark with a ping that is sent now.
func (l *lag) mark(now time.Duration, ping proof, arrived int64) {
	l.marks = append(l.marks, mark{ping: ping, set: now, arrived: arrived, until: -1})
}

// see forgets the marks that were reached, and returns the last of them, given the last
// ping that was answered, and how many requests have arrived and wait in this process.
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

// isCrowd reports whether so many requests wait, for so long, that it is no pause.
func isCrowd(late time.Duration, waiting int64) bool {
	return waiting >= few && late*time.Duration(waiting) >= crowd
}

// of returns the age of the oldest mark, or how long the last mark took if that is more.
func (l *lag) of(now time.Duration) time.Duration {
	if len(l.marks) > 0 {
		return max(l.last, now-l.marks[0].set)
	}
	return l.last
}

// An overload is a time in which a group leaves again and again, or stays away, since
// it is late.
type overload struct {
	on          bool // the group is away now
	since       time.Duration
	first, last time.Duration // when it left first, and when it was away last
	times       int           // it left; 0 while there is no overload
	raised      bool          // the alarm
}

const (
	// calm ends an overload, after the last time the group was away.
	calm = 10 * time.Second
	// lasting is how long an overload lasts that is worth an alarm. It counts as
	// trouble for as long after the last time the group was away.
	lasting = time.Second
)

// leave notes that the group leaves, and reports whether an overload begins.
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

// pass notes that time has passed, and reports whether it is time for the alarm, and
// whether the overload is over.
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

// jittered returns a time from d to a quarter above.
func jittered(d time.Duration) time.Duration { return d + jitter.UpTo(d/4) }
