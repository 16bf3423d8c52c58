package segment

import "time"

// A waiter is a parked request.
type waiter struct {
	n       int64
	expires time.Time
	done    func([]Range, error)
}

// An outcome is an answer to a waiter, to be delivered without the lock.
type outcome struct {
	done   func([]Range, error)
	ranges []Range
	err    error
}

func deliver(answers []outcome) {
	for _, o := range answers {
		o.done(o.ranges, o.err)
	}
}

// A queue is the requests that wait for one tag, in order of arrival. Tags in
// use hardly ever have one, so it is made for the first and dropped with the
// last; nil is an empty one. All wait equally long: the first to come is the
// first to expire, and one timer does.
type queue struct {
	waiters []waiter
	ids     int64 // that they ask for
	expiry  *time.Timer
}

func newQueue(expiry *time.Timer) *queue { return &queue{expiry: expiry} }

func (q *queue) len() int {
	if q == nil {
		return 0
	}
	return len(q.waiters)
}

// demand returns how many IDs are waited for.
func (q *queue) demand() int64 {
	if q == nil {
		return 0
	}
	return q.ids
}

// head returns the first waiter; there must be one.
func (q *queue) head() waiter { return q.waiters[0] }

func (q *queue) push(w waiter) {
	q.waiters = append(q.waiters, w)
	q.ids += w.n
}

func (q *queue) pop() waiter {
	w := q.waiters[0]
	q.waiters[0] = waiter{}
	q.waiters = q.waiters[1:]
	q.ids -= w.n
	return w
}
