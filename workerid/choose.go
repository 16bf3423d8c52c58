package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"time"
)

// A chooser chooses a worker number and acquires it: the number of the state file if it can be resumed, else a random
// free one of the numbers that this worker may take. First it asks on the number's subject which worker holds it, so
// that a number whose holder is alive is not acquired, whatever the records say. Only the goroutine of Keeper.Run
// uses it.
//
// # When silence proves nothing
//
// If a process that subscribes to id.worker.* receives the question and does not answer, a number without a holder
// cannot be distinguished from one whose holder hangs ([ErrBystander]). A live holder answers as usual. Without an
// answer the record decides alone:
//
//   - A window that has not ended is never acquired. This is (2) of the law. It protects a holder whose serving
//     connection is cut while the bystander hides that.
//   - A window may seem to have ended because the registry lost its state. So the new window begins a margin and
//     unheardFor after the write was acknowledged: a live holder that reaches the registry reads the record at its next
//     heartbeat, and closes its generator before then.
//   - The own window, as the state file remembers it, is resumed: (1) and (3).
//
// # Without heartbeats
//
// Heartbeats show which numbers have an owner although their records are lost, and the clocks of other workers. The
// law depends on neither: (1) and (2) are about records, which are read and written as always. So if only the
// heartbeats have been out of reach for blindAfter, a number is acquired without them: by a clock that agrees with
// the registry's. Its window begins as late as after a question to which silence proves nothing.
//
// The loser of a compare-and-set tries the next number. A write that was not acknowledged leaves an unconfirmed
// claim: the next attempt continues that claim if the record bears its token. Otherwise the write may still land, so
// that attempt prefers the same number, and recognizes the write: its claim continues the series of tokens. So lost
// replies and late writes do not block one number after another.
type chooser struct {
	terms
	mine    Span // the numbers that this worker may take
	founder founder
	clock   *clock
	alarms  *alarms
	lag     lag
	rand    *rand.Rand
	// joined is called with the registry's ID and this clock's offset once this worker may join the registry.
	joined func(registry string, offset time.Duration)
	log    *slog.Logger

	gaveUpOwn   bool      // the number of the state file was given up for another
	unconfirmed *claim    // the claim whose write was not acknowledged and may have landed
	lost        *claim    // the claim whose record was lost while this process held it
	ended       *claim    // the claim whose window passed while this process held it
	exhausted   int       // consecutive attempts that found no number free
	warned      bool      // the warning about a bystander was logged
	awaySince   time.Time // since when no attempt reached the registry; zero if the last one did
	blindSince  time.Time // since when only heartbeats cannot be read; zero if they can be, or nothing can
	isBlind     bool      // the last look was without heartbeats
}

// A waitError says when the next attempt is due.
type waitError struct {
	error
	atLeast time.Duration // 0 unless an earlier attempt would find the same
	atMost  time.Duration // after it the situation changes
}

func (e *waitError) Unwrap() error { return e.error }

const (
	// awayAfter is how long the registry must be out of reach before a worker resumes without it; one lost reply is
	// not an outage. After a crash the fence is about as far ahead.
	awayAfter = 2 * time.Second
	// A worker that found no number free retries after minExhausted, with pauses that double up to maxExhausted: each
	// attempt reads all records and heartbeats.
	minExhausted = 2 * time.Second
	maxExhausted = 30 * time.Second
	// blindAfter is how long heartbeats must be out of reach before a number is acquired without them: a busy
	// registry is late with a list, and such a list is worth waiting for.
	blindAfter = 10 * time.Second
	// maxLate is the longest pause after attempts that were not answered in time.
	maxLate = 10 * time.Second
	// maxUnknown is how many numbers are skipped because the question for them failed. A few may belong to workers
	// that hang; more mean that no question can be answered.
	maxUnknown = 3
	// unheardFor is added to the margin before a window begins if another worker may have had the number a moment ago
	// and could not be asked. It covers two heartbeats: at each, a worker whose record is no longer its own closes
	// its generator.
	unheardFor = 6 * time.Second
)

// find makes one attempt to get a claim. It does not wait for a number: the error says why there is none, and a
// *waitError how soon to retry.
func (h *chooser) find(ctx context.Context) (*claim, error) {
	seen, v, err := h.look(ctx)
	if isAway(err) {
		return h.findAway(ctx, err)
	}
	h.awaySince = time.Time{}
	if err != nil {
		return nil, err
	}
	behind := time.Duration(h.lastReported(v)-seen.now) * time.Millisecond
	if behind > h.maxAhead {
		h.alarms.set(ClockBehind, fmt.Sprintf(behindText, behind, "the last report of "+h.instance, maxBehind))
		if left := h.lag.left(); left > 0 {
			return nil, &waitError{fmt.Errorf("%w: by %v", errBehind, behind), 0, min(behind, left)}
		}
		return h.acquireAny(ctx, seen, v)
	}
	h.lag = lag{}
	h.alarms.clear(ClockBehind)
	if c := h.unconfirmed; c != nil && c.wrote(v.records[c.number]) {
		return h.confirm(ctx, seen, c, v.records[c.number])
	}
	if c, err := h.reacquire(ctx, seen, v); c != nil || err != nil {
		return c, err
	}
	if c, err := h.resume(ctx, seen, v); c != nil || err != nil {
		return c, err
	}
	return h.acquireAny(ctx, seen, v)
}

// isAway reports whether err means that the registry is out of reach.
func isAway(err error) bool {
	return err != nil && !isRefused(err) && !errors.Is(err, errClock) && !errors.Is(err, ErrStateFile)
}

// A view is the state of the registry as read a moment ago, from which a number is chosen.
type view struct {
	records    map[int]Record
	heartbeats map[int]Heartbeat
	lost       *claim // the claim whose heartbeat is this worker's own; nil if none was lost
}

// isFree reports whether number w seems to have no owner at now, Unix ms.
func (v view) isFree(w int, now int64) bool {
	beat, live := v.heartbeats[w]
	if v.lost != nil && v.lost.number == w && v.lost.sent(beat) {
		live = false
	}
	return !live && v.records[w].Until <= now && !v.records[w].Damaged //mutant:free-number
}

// look compares the clock, checks that this worker may join the registry, and reads its records and heartbeats.
func (h *chooser) look(ctx context.Context) (seen reading, v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*listTimeout)
	defer cancel()
	seen, beats, err := h.compare(ctx)
	if err != nil {
		return reading{}, view{}, err
	}
	have, err := h.founder.join(ctx)
	if err != nil {
		return reading{}, view{}, err
	}
	if f := h.file; !f.absent && f.Claim != nil && f.Deployment.ID != have.ID {
		h.alarms.set(StateFile, fmt.Sprintf("the state file remembers a number of another registry (%s, this is %s): "+
			"it is ignored, and another number acquired; unless this worker was moved, find out who replaced "+
			"the registry",
			f.Deployment.ID, have.ID))
	}
	h.joined(have.ID, seen.offset)
	if err := h.file.settle(have, h.instance); err != nil {
		return reading{}, view{}, err
	}
	if v.records, err = h.registry.Records(ctx); err != nil {
		return seen, v, err
	}
	if err := checkRecords(have, v.records); err != nil {
		return reading{}, view{}, err
	}
	h.warnOfDamage(v.records)
	v.heartbeats, v.lost = beats, h.lost
	return seen, v, nil
}

// compare compares the clock and reads the heartbeats. It leaves the heartbeats out if they have been out of reach
// for blindAfter.
func (h *chooser) compare(ctx context.Context) (seen reading, beats map[int]Heartbeat, err error) {
	h.isBlind = false
	seen, beats, err = h.clock.compareFresh(ctx)
	unread := h.clock.readErr
	if err == nil || unread == nil || !errors.Is(err, unread) {
		h.blindSince = time.Time{}
		return seen, beats, err
	}
	if h.blindSince.IsZero() {
		h.blindSince = time.Now()
	}
	why := fmt.Errorf("workerid: the heartbeats of others cannot be read: %w", err)
	if time.Since(h.blindSince) < blindAfter {
		return reading{}, nil, why
	}
	if seen, err = h.clock.compare(ctx); err != nil {
		return reading{}, nil, errors.Join(why, err)
	}
	h.isBlind = true
	return seen, nil, nil
}

// lastReported returns the latest time that this worker is known to have read from its clock, Unix ms: in the newest
// record of its name, in that number's heartbeat, or at the last move of the fence in its state file.
func (h *chooser) lastReported(v view) int64 {
	var newest Record
	for w, r := range v.records {
		if r.Instance != h.instance || r.Revision <= newest.Revision {
			continue
		}
		newest = r
		if beat := v.heartbeats[w]; beat.Instance == h.instance {
			newest.Reported = max(r.Reported, beat.Time)
		}
	}
	return max(h.file.reported(), newest.Reported)
}

// acquireAny acquires a random free number of those that this worker may take.
func (h *chooser) acquireAny(ctx context.Context, seen reading, v view) (*claim, error) {
	// All numbers in a random order: with a power of 2, an odd stride meets each once.
	size := 1 << bits.Len(uint(h.mine.count()-1))
	start, stride := h.rand.IntN(size), h.rand.IntN(size)|1
	if c := h.unconfirmed; c != nil {
		start = c.number - h.mine.First
	}
	unknown, frees := 0, 2*maxExhausted // no pause is longer
	for i := range size {
		w := h.mine.First + (start+i*stride)&(size-1)
		if !h.mine.has(w) {
			continue
		}
		if !v.isFree(w, seen.now) {
			wait := time.Duration(v.records[w].Until-seen.now) * time.Millisecond
			if _, live := v.heartbeats[w]; wait > 0 && !live { // a live worker extends its window
				frees = min(frees, wait)
			}
			continue
		}
		c, err := h.acquire(ctx, seen, w, v.records[w])
		if errors.Is(err, errUnknown) && h.unconfirmed == nil && unknown < maxUnknown {
			unknown++
			continue
		}
		if !errors.Is(err, errTaken) {
			return c, err
		}
	}
	err := fmt.Errorf("%w: all %d that it may take have an owner, or a window that has not ended: "+
		"this worker keeps trying; `natsid workers` shows whose and until when", ErrExhausted, h.mine.count())
	seldom := min(minExhausted<<min(h.exhausted, 16), maxExhausted)
	h.exhausted++
	return nil, &waitError{err, seldom, frees}
}

// acquire acquires the free number w, whose record is r, from r.Until on.
func (h *chooser) acquire(ctx context.Context, seen reading, w int, r Record) (*claim, error) {
	from := max(r.Until, seen.now) //mutant:acquire-from
	c := h.claimOn(w, from)
	own := h.file.own(w)
	if own != nil { // a restored record may be of an earlier write of the claim
		c.from = max(c.from, own.Free) //mutant:own-free
	}
	c.doubtful = !own.wrote(r.Token) //mutant:doubtful
	if h.isBlind {
		c.unheard = true //mutant:blind
		h.log.Warn("the heartbeats of other workers cannot be read: a number is acquired by its record alone, and "+
			"used some seconds later; check the bucket of the heartbeats", "number", w, "later", unheardFor)
	}
	return h.confirm(ctx, seen, c, r)
}

// claimOn returns a claim on number w whose window begins at from, Unix ms. Its record is not written yet.
func (h *chooser) claimOn(w int, from int64) *claim {
	d := h.founder.deployment
	return &claim{terms: h.terms, number: w, from: max(from, d.From), deployment: d}
}

// confirm replaces record r by that of claim c, unless another worker answers for the number. After an error that
// leaves the outcome open, it keeps the claim as unconfirmed.
func (h *chooser) confirm(ctx context.Context, seen reading, c *claim, r Record) (*claim, error) {
	if u := h.unconfirmed; u != nil && u.number == c.number {
		c.series, c.asked = u.series, u.asked
	}
	h.unconfirmed = nil
	if err := h.ask(ctx, c); err != nil {
		// On a busy machine every number that was written and then given up would stay blocked.
		if c.asked++; errors.Is(err, errUnknown) && c.series.wrote > 0 && c.asked <= maxUnknown {
			h.unconfirmed = c
		}
		return nil, err
	}
	c.revision, c.compared, c.deployment = r.Revision, seen, h.founder.deployment
	err := h.establish(ctx, c, r)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, errLost):
		return nil, errTaken
	//mutant:no-doubt
	case errors.Is(err, errTaken), errors.Is(err, ErrStateFile): // a later process may believe the file
		return nil, err
	}
	h.unconfirmed = c
	return nil, err
}

// establish writes the record of claim c over r and opens the claim.
func (h *chooser) establish(ctx context.Context, c *claim, r Record) error {
	now := c.compared.now
	if err := c.write(ctx, now, max(r.Until, c.firstUntil(now))); err != nil {
		return err
	}
	//mutant:absent-record
	if c.doubtful {
		var err error
		if now, err = h.afterLoss(ctx, c); err != nil {
			return err
		}
	}
	//mutant:deployment-won
	if err := c.sameDeployment(ctx, h.log); errors.Is(err, errLost) { // all numbers are affected, not this one alone
		return errors.New("workerid: the registry was made again while a number was acquired; trying again")
	} else if err != nil {
		return err
	}
	return c.open(now)
}

// afterLoss makes a claim safe on a number of which this worker is not known to be the owner. The record may be
// absent, or look free, because the registry lost its state or was restored, perhaps while this claim was being
// written. Then another worker may have the number, and answers for it, or had it until a moment ago. So the window
// begins at a time that no clock within the skew has reached, nor an ID that ran ahead of such a clock. It returns
// the time of the clock, compared again, Unix ms.
func (h *chooser) afterLoss(ctx context.Context, c *claim) (now int64, err error) {
	seen, err := h.clock.compare(ctx)
	if err != nil {
		return 0, err
	}
	if err := h.ask(ctx, c); err != nil { //mutant:second-question
		return 0, err
	}
	if _, err := c.recheck(ctx); err != nil {
		return 0, err
	}
	c.from = max(c.from, seen.now+c.caution().Milliseconds())
	return seen.now, c.write(ctx, seen.now, max(c.until.Load(), c.firstUntil(seen.now)))
}

// ask returns nil if no other process answers for the number of c, errTaken if one does, and errUnknown if the
// question failed. The answer overrides the records, which may be newer than the process. It sets c.unheard if
// silence proves nothing.
func (h *chooser) ask(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	who, err := h.registry.Ask(ctx, c.number)
	switch {
	//mutant:own-answer
	case errors.Is(err, ErrNoWorker) || err == nil && who.Process == h.process:
		return nil
	case errors.Is(err, ErrBystander):
		if !h.warned {
			h.warned = true
			h.log.Warn("another program subscribes to the questions for worker numbers and does not answer them, so "+
				"silence proves nothing: a number that is new to this worker is used some seconds later; narrow that "+
				"subscription or stream, so that it leaves out the subjects of worker numbers", "later", unheardFor)
		}
		c.unheard = true //mutant:unheard
		return nil
	case err == nil: //mutant:answered
		return fmt.Errorf("%w: worker %q answers for %d", errTaken, who.Instance, c.number)
	}
	return fmt.Errorf("%w: number %d: %w", errUnknown, c.number, err)
}
