package segment

import (
	"slices"
	"time"
)

// A waiter is a parked request.
type waiter struct {
	n       int64
	expires time.Time
	soon    time.Time // when it expires instead while loads of the tag fail repeatedly
	done    func([]Range, error)
}

// end returns when the request expires.
func (x waiter) end(failing bool) time.Time {
	if failing {
		return x.soon
	}
	return x.expires
}

// An answer is the outcome of a parked request. It is delivered without the buffer's lock.
type answer struct {
	done   func([]Range, error)
	ranges []Range
	err    error
}

func deliver(answers []answer) {
	for _, a := range answers {
		a.done(a.ranges, a.err)
	}
}

// waiters are the requests that wait for one tag, in order of arrival. All have the same deadline, so the first to
// arrive is the first to expire, and one timer serves all. While loads of the tag fail repeatedly, the deadline is
// shorter, which leaves callers time to ask another worker. The buffer's lock guards waiters.
type waiters struct {
	queue *queue // nil if no request waits, as for most tags: it takes memory only when needed
	ever  int64  // number of requests that ever waited
}

type queue struct {
	waiters []waiter
	ids     int64 // total of IDs requested
	expiry  *time.Timer
}

func (w *waiters) any() bool { return w.queue != nil }

func (w *waiters) len() int {
	if w.queue == nil {
		return 0
	}
	return len(w.queue.waiters)
}

// demand returns the total of IDs that waiting requests ask for.
func (w *waiters) demand() int64 {
	if w.queue == nil {
		return 0
	}
	return w.queue.ids
}

// push adds a request. expire is called when the deadline of the first request has passed.
func (w *waiters) push(x waiter, failing bool, expire func()) {
	w.ever++
	if w.queue == nil {
		w.queue = &queue{expiry: time.AfterFunc(time.Until(x.end(failing)), expire)}
	}
	w.queue.waiters = append(w.queue.waiters, x)
	w.queue.ids += x.n
}

// pop removes the first request, and the queue with the last one.
func (w *waiters) pop() waiter {
	q := w.queue
	x := q.waiters[0]
	q.waiters[0] = waiter{}
	q.waiters = q.waiters[1:]
	q.ids -= x.n
	if len(q.waiters) == 0 {
		q.expiry.Stop()
		w.queue = nil
	}
	return x
}

// serve removes requests from the head of the queue as long as the stock, which must be shut, has the IDs for them. It
// appends their answers to answers. It serves nothing from a sealed stock, that of a strict tag: see serveUpTo.
func (w *waiters) serve(s *stock, answers []answer) []answer {
	if s.sealed {
		return answers
	}
	return w.serveUpTo(w.ever, s, answers)
}

// serveUpTo is serve for the requests with numbers up to the parameter last, counted from the first request that ever
// waited. It serves from the sealed stock of a strict tag, too.
func (w *waiters) serveUpTo(last int64, s *stock, answers []answer) []answer {
	for w.any() && w.ever-int64(w.len()) < last && w.queue.waiters[0].n <= s.restLen {
		x := w.pop()
		answers = append(answers, answer{done: x.done, ranges: s.take(x.n, nil)})
	}
	return answers
}

// refuse removes all requests: it serves those for which the stock has enough IDs and refuses the others.
func (w *waiters) refuse(s *stock, err error) (answers []answer) {
	for answers = w.serve(s, nil); w.any(); answers = w.serve(s, answers) {
		answers = append(answers, answer{done: w.pop().done, err: err})
	}
	return answers
}

// exhausted is called when the store holds no more IDs of the tag than the parameter left says. It refuses each request
// that these and the IDs in the stock cannot serve after the requests before it, and serves those for which the stock
// has enough.
func (w *waiters) exhausted(s *stock, left int64, why error) (answers []answer) {
	if answers = w.serve(s, nil); !w.any() {
		return answers
	}
	q := w.queue
	left += s.restLen
	q.waiters = slices.DeleteFunc(q.waiters, func(x waiter) bool {
		if x.n <= left {
			left -= x.n
			return false
		}
		q.ids -= x.n
		answers = append(answers, answer{done: x.done, err: &ExhaustedError{Left: left, Why: why}})
		return true
	})
	if len(q.waiters) == 0 {
		q.expiry.Stop()
		w.queue = nil
	}
	return w.serve(s, answers)
}

// expire refuses with err the requests whose deadline has passed. Then it serves later requests for which the stock has
// enough IDs.
func (w *waiters) expire(s *stock, now time.Time, failing bool, err error) (answers []answer) {
	for w.any() && !w.queue.waiters[0].end(failing).After(now) {
		answers = append(answers, answer{done: w.pop().done, err: err})
	}
	answers = w.serve(s, answers)
	w.setExpiry(failing)
	return answers
}

// setExpiry sets the timer of the first request. Call it when loads begin to fail.
func (w *waiters) setExpiry(failing bool) {
	if w.any() {
		w.queue.expiry.Reset(time.Until(w.queue.waiters[0].end(failing))) //mutant:expiry
	}
}
