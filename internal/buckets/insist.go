package buckets

import (
	"context"
	"errors"
	"time"
)

const (
	// askAgain is how long a read has no answer, at least, until it is asked again.
	askAgain = 100 * time.Millisecond
	// slow is how many times what answers take that is, at least.
	slow = 3
)

// insist calls ask, and once more beside that if there was no answer after some time, then after twice that, and so on.
// The first answer counts, one that refuses too. ask must change nothing.
//
// What the leader of a stream has not answered when it steps down is lost, as is what it was asked before the next one
// leads: nobody says so. The next one mostly leads within 0.1 s, and a read would wait for all the time that it has.
func insist[T any](ctx context.Context, after time.Duration, ask func(context.Context) (T, error)) (T, error) {
	first, giveUp := context.WithCancel(ctx)
	defer giveUp()
	again, stop := context.WithCancel(ctx)
	defer stop()
	var second T
	var refused error
	done := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(done)
		if second, refused = insist(again, 2*after, ask); isAnswer(refused) {
			giveUp()
		}
	})
	v, err := ask(first)
	if timer.Stop() {
		return v, err
	}
	if isAnswer(err) {
		stop()
	}
	<-done
	if !isAnswer(err) && isAnswer(refused) {
		return second, refused
	}
	return v, err
}

// isAnswer reports whether a call that ended with err need not be made again: its time has not just passed.
func isAnswer(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}
