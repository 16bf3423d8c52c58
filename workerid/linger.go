package workerid

import (
	"context"
	"time"
)

// linger makes this worker answer for a lost number, while it searches for another, until no clock within the skew is
// behind the last ID of that number: if the registry lost its state the number looks free, and its next owner must
// not begin before that time. The next owner asks twice and waits for a margin itself, which is enough if it received
// the first answer; linger covers the case that it did not.
func (k *Keeper) linger() { k.answers = time.Now().Add(k.terms.margin) }

// awaitLinger waits until this worker has stopped answering for the lost number, and then asks once more for the
// number of claim c, for which it did not answer while it lingered. Law: a number that another worker answers for is
// not acquired. A registry that lost c's record and got it back would otherwise show both workers a record of their
// own. The error is errTaken or errUnknown, or that of ctx.
func (k *Keeper) awaitLinger(ctx context.Context, c *claim) error {
	left := time.Until(k.answers)
	if !k.wait(ctx, left) {
		return ctx.Err()
	}
	if left <= 0 {
		return nil
	}
	return k.chooser.ask(ctx, c) //mutant:lingered
}
