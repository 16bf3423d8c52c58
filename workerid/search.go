package workerid

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// A search chooses a worker number and acquires it: the number of the state file if that can be resumed, or else a
// random free number of those that this worker may take. First it asks, on the subject of the number, which worker
// holds the number. So a number whose holder is alive is not acquired, whatever the records say.
//
// # When silence proves nothing
//
// If a bystander, a process that subscribes to id.worker.*, receives the question and does not answer, a number without
// a holder cannot be distinguished from one whose holder hangs ([ErrBystander]). A live holder answers as usual.
// Without an answer the record decides alone:
//
//   - A new window begins at or after the end of every former owner's. So a holder is protected until its window ends,
//     even if its serving connection is cut.
//   - A window may only seem to have ended, because the registry lost its state. So the new window begins later
//     than its write was acknowledged, by unheardFor and the margin (see [Config]). By then a live holder that
//     reaches the registry has read the record and closed its generator.
//   - This worker's own window, from its state file, is resumed at the fence there, which no issued tick reaches.
//
// # Writes whose outcome is unknown
//
// The loser of a compare-and-set tries the next number. A write that was not acknowledged leaves a pending claim.
// The next attempt prefers the number of the pending claim, and recognizes by the claim's token that the write
// landed late. So lost replies and late writes do not block one number after another.

const (
	// awayAfter is how long the registry must be out of reach before a worker resumes its number without it: one
	// lost reply is no outage. The wait costs little: after a crash no ID may be issued for 1.5 to 3 s anyway,
	// until the clock reaches the fence in the state file.
	awayAfter = 2 * time.Second
	// unheardFor is added to the margin before a newly acquired number is used, if a bystander hides whether another
	// worker still has the number. It covers two heartbeats: at each, a worker that lost its record stops issuing.
	unheardFor = 6 * time.Second
)

// find makes one attempt to get a claim, the hold of a number. The error is why there is none, such as ErrExhausted.
func (k *Keeper) find(ctx context.Context) (*claim, error) {
	v, err := k.look(ctx)
	if isAway(err) {
		return k.findAway(ctx, err)
	}
	k.awaySince = time.Time{}
	if err != nil {
		return nil, err
	}
	if c := k.ended; c != nil {
		if k.ended = nil; v.records[c.number].Token != "" && !c.wrote(v.records[c.number]) {
			k.raiseLost(c.lostTo(v.records[c.number]))
		}
	}
	behind := time.Duration(k.lastReported(v)-v.now) * time.Millisecond
	if behind > k.cfg.MaxAhead {
		k.alarms.set(ClockBehind, fmt.Sprintf(behindText, behind, "the last report of "+k.cfg.Instance))
		if behind.Milliseconds() <= k.clock.tolerance { // the clock catches up sooner than another number can be used
			return nil, fmt.Errorf("%w: by %v", errBehind, behind)
		}
		return k.acquireAny(ctx, v)
	}
	k.alarms.clear(ClockBehind)
	if c := k.pending; c != nil && c.wrote(v.records[c.number]) {
		return k.confirm(ctx, c, v)
	}
	if c, err := k.resume(ctx, v); c != nil || err != nil {
		return c, err
	}
	return k.acquireAny(ctx, v)
}

// isAway reports whether err means that the registry is out of reach.
func isAway(err error) bool {
	return err != nil && !isRefused(err) && !errors.Is(err, errClock) && !errors.Is(err, ErrStateFile)
}

// A view is the state of the registry as read a moment ago, from which a number is chosen.
type view struct {
	now        int64 // the compared clock, Unix ms
	deployment Deployment
	records    map[int]Record
	heartbeats map[int]Heartbeat
}

// isFree reports whether number w seems to have no owner at the time now, Unix ms.
func (v view) isFree(w int, now int64) bool {
	_, live := v.heartbeats[w]
	return !live && v.records[w].Until <= now && !v.records[w].Damaged //mutant:free-number
}

// look compares the clock, checks that this worker may join the registry, and reads its records and heartbeats.
func (k *Keeper) look(ctx context.Context) (v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*listTimeout)
	defer cancel()
	seen, beats, err := k.clock.compare(ctx, true)
	if err != nil {
		return view{}, err
	}
	have, holders, err := k.join(ctx)
	if err != nil {
		return view{}, err
	}
	if k.numbers.holders, err = holders.Of(k.cfg.Layout, k.cfg.Site); err != nil {
		return view{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if f := k.file; !f.absent && f.Claim != nil && f.Deployment.ID != have.ID {
		k.alarms.set(StateFile, fmt.Sprintf("the state file remembers a number of another registry (%s, this is %s): "+
			"it is ignored, and another number acquired; unless this worker was moved, find out who replaced "+
			"the registry",
			f.Deployment.ID, have.ID))
	}
	k.life.note(func(s *Status) { s.Registry, s.Offset = have.ID, seen.offset })
	if err := k.file.settle(have, k.cfg.Instance); err != nil {
		return view{}, err
	}
	v = view{now: seen.now, deployment: have, heartbeats: beats}
	if v.records, err = k.cfg.Registry.Records(ctx); err != nil {
		return view{}, err
	}
	if err := checkRecords(have, v.records); err != nil {
		return view{}, err
	}
	k.warnOfDamage(v.records)
	return v, nil
}

// lastReported returns the latest time that this worker is known to have read from its clock, Unix ms: the highest
// in the newest record with this worker's name, in the heartbeat of that record's number, and in the state file.
func (k *Keeper) lastReported(v view) int64 {
	var newest Record
	for w, r := range v.records {
		if r.Instance != k.cfg.Instance || r.Revision <= newest.Revision {
			continue
		}
		newest = r
		if beat := v.heartbeats[w]; beat.Instance == k.cfg.Instance {
			newest.Reported = max(r.Reported, beat.Time)
		}
	}
	return max(k.file.reported(), newest.Reported)
}

// resume acquires the number in the state file; nil without an error means that it cannot.
//
// A claim in the file means that the previous process crashed. While the record is of that claim, this worker still
// owns the number. It resumes the rest of the window from the fence on, a time in the file that no issued tick
// reaches. If the window in the file has passed, the record may be a restored one, and another worker may have had
// the number since. So nothing is issued for the margin.
//
// Without a claim in the file, the previous process stopped cleanly. Its number is acquired like any other, even if
// the last window ends only some 3 s from now: the new window begins at that end.
func (k *Keeper) resume(ctx context.Context, v view) (c *claim, err error) {
	w, ok := k.file.number(k.numbers.Span)
	if !ok {
		return nil, nil
	}
	r := v.records[w]
	switch last := k.file.Claim; {
	case last != nil && last.wrote(r): //mutant:resume
		c = k.claimOn(w, max(last.Fence, v.now), v.deployment)
		if c.how = Resumed; last.Until <= v.now { //mutant:passed
			c.how, c.caution = Acquired, k.cfg.margin()
		}
		c, err = k.confirm(ctx, c, v)
	case last == nil && k.numbers.has(w) && v.isFree(w, v.now+(fenceReach+2*k.cfg.unit()).Milliseconds()):
		c, err = k.acquire(ctx, w, v)
	}
	if errors.Is(err, errTaken) || errors.Is(err, errUnknown) {
		return nil, nil
	}
	return c, err
}

// acquireAny acquires a random free number of those that this worker may take.
func (k *Keeper) acquireAny(ctx context.Context, v view) (*claim, error) {
	// Visit all numbers in a random order: modulo a power of 2, an odd stride meets each number once.
	mine := k.numbers
	size := 1 << bits.Len(uint(mine.count()-1))
	start, stride := k.rand.IntN(size), k.rand.IntN(size)|1
	if c := k.pending; c != nil {
		start = c.number - mine.First
	}
	for i := range size {
		w := mine.First + (start+i*stride)&(size-1)
		if !mine.has(w) || !v.isFree(w, v.now) {
			continue
		}
		if c, err := k.acquire(ctx, w, v); !errors.Is(err, errTaken) {
			return c, err
		}
	}
	return nil, fmt.Errorf("%w: %s; `natsid workers` shows whose they are", ErrExhausted, mine.exhausted(v))
}

// claimOn returns a claim on number w whose window begins at from, Unix ms. Its record is not written yet.
func (k *Keeper) claimOn(w int, from int64, of Deployment) *claim {
	token := newToken() //mutant:new-token
	return &claim{k: k, number: w, from: from, deployment: of, token: token, how: Acquired}
}

// acquire acquires the free number w. The new window begins no earlier than the last one ended.
func (k *Keeper) acquire(ctx context.Context, w int, v view) (*claim, error) {
	r := v.records[w]
	from := max(r.Until, v.now) //mutant:acquire-from
	c := k.claimOn(w, from, v.deployment)
	own := k.file.own(w)
	if own != nil { // the record may be a restored one, of an earlier write
		c.from = max(c.from, own.Free) //mutant:own-free
	}
	if !own.wrote(r) { //mutant:doubtful
		c.caution = k.cfg.margin()
	}
	return k.confirm(ctx, c, v)
}

// confirm writes the record of c, unless another worker answers for its number. If an error leaves unknown whether
// the write landed, the claim becomes pending: the next attempt looks for that write.
func (k *Keeper) confirm(ctx context.Context, c *claim, v view) (*claim, error) {
	if p := k.pending; p != nil && p.number == c.number {
		c.token = p.token
	}
	k.pending = nil
	if err := k.ask(ctx, c); err != nil {
		return nil, err
	}
	r := v.records[c.number]
	c.revision, c.deployment = r.Revision, v.deployment
	err := k.establish(ctx, c, v.now, r.Until)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, errLost):
		return nil, errTaken
	//mutant:no-doubt
	case errors.Is(err, errTaken), errors.Is(err, ErrStateFile): // a later process may believe the file
		return nil, err
	}
	k.pending = c
	return nil, err
}

// establish writes the record of claim c, in place of a record whose window ends at the parameter until, and opens
// the claim. now is the time of the clock; both are Unix ms. The window of the new record ends after the first ID
// of the claim, so that the next owner sees that the number may have just been in use.
//
// Unless this worker is known to be the owner, it issues nothing for the time c.caution: the record may be absent,
// or look free, because the registry lost its state or was restored, perhaps during this write. Then another worker
// may have the number, and answers for it, or may have just had it. So this worker asks again after the write, and
// its window begins above the clocks of all workers within the skew, and above IDs that ran ahead of those clocks.
// The record is read again before the first ID.
func (k *Keeper) establish(ctx context.Context, c *claim, now, until int64) error {
	err := c.write(ctx, now, max(until, now+(k.cfg.Horizon+c.caution+k.cfg.Rest).Milliseconds()))
	if err != nil {
		return err
	}
	//mutant:deployment-won
	if have, _, err := k.join(ctx); err != nil {
		return err
	} else if have.ID != c.deployment.ID { // not errTaken: all other numbers are affected, too
		return errors.New("workerid: the registry was made again while a number was acquired; trying again")
	}
	//mutant:absent-record
	if c.caution > 0 {
		seen, _, err := k.clock.compare(ctx, false)
		if err != nil {
			return err
		}
		if err := k.ask(ctx, c); err != nil { //mutant:second-question
			return err
		}
		now = seen.elapsed()
		c.from = max(c.from, now+c.caution.Milliseconds())
	}
	return c.open(now)
}

// ask returns nil if no other process answers for the number of c, errTaken if one does, and errUnknown if the
// question failed. An answer outweighs the records, which may have been restored. If a bystander makes silence
// prove nothing, ask also returns nil, but lengthens c.caution if another worker may have had the number.
func (k *Keeper) ask(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	who, err := k.cfg.Registry.Ask(ctx, c.number)
	switch {
	//mutant:own-answer
	case errors.Is(err, ErrNoWorker) || err == nil && who.Process == k.process:
		return nil
	case errors.Is(err, ErrBystander):
		if c.caution > 0 { //mutant:unheard
			c.caution = k.cfg.margin() + unheardFor
			k.cfg.Log.Warn("another program subscribes to the questions for worker numbers and does not answer them, "+
				"so silence proves nothing: a number that is new to this worker is used some seconds later; narrow "+
				"that subscription or stream, so that it leaves out the subjects of worker numbers",
				"later", unheardFor)
		}
		return nil
	case err == nil: //mutant:answered
		return fmt.Errorf("%w: worker %q answers for %d", errTaken, who.Instance, c.number)
	}
	return fmt.Errorf("%w: number %d: %w", errUnknown, c.number, err)
}

// findAway replaces find while the registry is out of reach; the parameter why is the reason. This worker may then
// resume its own number from the state file, and acquire no other.
func (k *Keeper) findAway(ctx context.Context, why error) (*claim, error) {
	if k.awaySince.IsZero() {
		k.awaySince = time.Now()
	}
	why = fmt.Errorf("%w: %w", errAway, why)
	w, ok := k.file.number(k.numbers.Span)
	if !ok || k.file.Claim == nil || DeploymentOf(k.cfg.Layout).check(k.file.Deployment) != nil {
		return nil, fmt.Errorf("%w; the state file has no window to resume", why)
	}
	if time.Since(k.awaySince) < awayAfter {
		return nil, why
	}
	c, err := k.resumeAway(ctx, w, k.file.Claim)
	if err != nil {
		return nil, fmt.Errorf("%w; %w", why, err)
	}
	k.cfg.Log.Warn("the registry is out of reach: this worker resumes its number until the window ends; check NATS",
		"number", c.number, "until", time.UnixMilli(c.until.Load()).UTC(), "error", why)
	return c, nil
}

// resumeAway resumes number w of the previous process while the registry is out of reach, in the rest of its last
// window from the fence on (a time in the state file that no issued tick reaches). No other worker was ever given
// that rest: others begin at the window's end in the record, and a clean stop removes the claim from the file
// before it lowers that end.
func (k *Keeper) resumeAway(ctx context.Context, w int, last *stateClaim) (*claim, error) {
	now := k.cfg.Now()
	if behind := time.Duration(k.file.reported()-now) * time.Millisecond; behind > k.cfg.MaxAhead {
		k.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind the state file, and the registry is out of "+
			"reach: no snowflakes until the clock has caught up or the registry is back; check both", behind))
		return nil, fmt.Errorf("%w: by %v", errBehind, behind)
	}
	from, until := max(last.Fence, now), last.Until //mutant:resume-away
	if from >= until {
		return nil, errors.New("workerid: the window in the state file has ended")
	}
	c := k.claimOn(w, from, k.file.Deployment)
	if err := k.ask(ctx, c); err != nil {
		return nil, err
	}
	// Forget the claim whose write had no answer: its window may begin before ticks that this claim issues.
	k.pending = nil //mutant:begin
	c.former, c.how, c.away = last.Token, Resumed, true
	c.until.Store(until)
	k.clock.last = reading{now: now, at: time.Now()} // the best known time: no comparison is possible
	return c, c.open(now)
}
