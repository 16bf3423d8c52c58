package segment

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A chain is loads that follow one another at once. It begins when the IDs in memory last for less than lowWater
// loads, and ends when they last for highWater loads. So no request waits, even if a load takes twice as long as
// any recent load.
const (
	lowWater  = 2
	highWater = 4
)

// chainSteps bounds a chain: it ends when memory holds chainSteps times the maximum step, however slow loads are or how
// large a burst of requests is. With loads of 0.5 s this allows 7 million IDs/s of one tag.
const chainSteps = 10

// checkEvery is about how long requests take IDs without the lock before one calls buffer.look, for a new speed.
const checkEvery = 250 * time.Millisecond

// A supply holds the ranges of a tag and the requests that wait for them, and decides when to load, and how many
// IDs. It has no lock and starts nothing; callers pass the time. Its stock is the ranges in memory: while the stock
// is open, requests take IDs from one range, in a run, without the lock.
//
// Normally a supply holds two ranges. If these would not last for two loads, each as slow as recent loads, it holds
// more: as many IDs as are used in four loads, bounded by chainSteps.
type supply struct {
	stock   stock
	waiters waiters
	pace    pace
	loader  loader
	rule    *stepRule
	closed  bool // the tag was stopped or the allocator closed: the stock is never opened again
	// isStrict says that the tag is strict: each request is served from a load that it joined, and no ID stays in
	// memory.
	isStrict bool
	rules    atomic.Pointer[Rules] // nil for none; read without the lock, too
	era      string                // era of the last load by this process; see [Floor]
	isRuled  bool                  // a load by this process has returned the tag's rules
	joined   int64                 // number of the last request that joined a strict tag's load: see serveUpTo
}

func newSupply(rule *stepRule, now time.Duration) supply {
	return supply{pace: pace{speed: newSpeedometer(now)}, rule: rule}
}

// settle measures the speed, opens the stock unless a request waits, and sets when a request calls buffer.look.
func (s *supply) settle(now time.Duration) {
	s.pace.note(now, s.asked(), s.stock.usedUp(now))
	s.reopen(now)
}

// reopen opens the stock unless a request waits, and sets when a request calls buffer.look, as settle does.
func (s *supply) reopen(now time.Duration) {
	if !s.waiters.any() && !s.closed {
		s.stock.open()
	}
	s.setCheck(now)
}

// unused reports whether no load of the tag has succeeded or is under way, and no request waits.
func (s *supply) unused() bool { return !s.loader.running && s.loader.loads == 0 && !s.waiters.any() }

// asked returns how many IDs were ever requested: those issued, and those that requests wait for now.
func (s *supply) asked() int64 { return s.stock.issued() + s.waiters.demand() }

// due reports whether a load should be under way: a request waits, or the next range is missing and a tenth of the
// current range is used, or the IDs in memory last for less time than lowWater loads take.
func (s *supply) due(now time.Duration) bool {
	held := s.stock.held()
	switch {
	case s.waiters.any():
		return true
	case s.closed || s.isStrict || s.loader.quiet(now):
		return false
	case held == 0:
		return true
	case !s.fits():
		return false
	}
	return s.stock.lastRangeBegun(held) || held < s.ahead(now, lowWater)
}

// plan returns how many IDs to load: the step, which follows from how long the last range lasted, or more if waiting
// requests and those during the next highWater loads need more than the step and the IDs in memory.
func (s *supply) plan(now time.Duration) int64 {
	s.pace.note(now, s.asked(), s.stock.usedUp(now))
	step, ahead := s.planned(s.pace.nextStep(*s.rule)), s.ruled().Step(s.ahead(now, highWater))
	return max(step, s.waiters.demand()+ahead-s.stock.held())
}

// planned returns how many IDs a load reserves for later requests: step, at most [Rules.Step], at least 1.
func (s *supply) planned(step int64) int64 { return s.ruled().Step(max(1, step)) }

// fits reports whether memory may take another load for later requests: [Rules.MaxHole] bounds what a crash loses.
func (s *supply) fits() bool { return s.stock.held()+s.planned(s.pace.step) <= s.ruled().mostHeld() }

// trim discards IDs in memory beyond [Rules.MaxHole], and reports whether there were any. There are some if a
// request gave up, or MaxHole was lowered.
func (s *supply) trim() bool {
	most := s.ruled().MaxHole
	return most > 0 && s.stock.keep(most)
}

// ruled returns the rules of the tag. The caller must not change them.
func (s *supply) ruled() *Rules {
	if r := s.rules.Load(); r != nil {
		return r
	}
	return &noRules
}

var noRules Rules

// ahead returns how many IDs are used during the given number of loads at the present speed; at most what
// chainSteps allows.
func (s *supply) ahead(now time.Duration, loads float64) int64 {
	need := s.pace.speed.at(now, s.asked()) * s.loader.slowest.Get().Seconds() * loads
	return min(count(need), chainSteps*min(MaxStep, max(s.rule.max, s.pace.configured)))
}

// join lets the load of a strict tag serve the requests that wait now, and returns how many IDs these request in total,
// within 1..[MaxStep]. The load calls join before it sends its compare-and-set, so that the range is above all IDs
// answered before those requests arrived.
func (s *supply) join() int64 {
	s.joined = s.waiters.ever
	return max(1, min(MaxStep, s.waiters.demand())) //mutant:join
}

// serve answers waiting requests from the loaded range; of a strict tag, only those that joined the load. The rest
// of a strict tag's range, such as IDs for requests that expired, is discarded.
func (s *supply) serve(now time.Duration) (answers []answer) {
	if !s.isStrict {
		return s.waiters.serve(&s.stock, nil)
	}
	answers = s.waiters.serveUpTo(s.joined, &s.stock, nil) //mutant:joined
	s.stock.discard(now)                                   //mutant:left-over
	return answers
}

// setCheck sets the ID at which a request calls buffer.look next: the last ID of the open run (the IDs that
// requests take without the lock), or an earlier ID at which a load will be due or the speed should be measured.
func (s *supply) setCheck(now time.Duration) {
	r := s.stock.run.Load()
	if r == nil {
		return
	}
	next, check := r.next.Load(), r.end-1
	soon := max(16, count(s.pace.speed.at(now, s.asked())*checkEvery.Seconds()))
	if soon < r.end-next {
		check = next + soon
	}
	if !s.loader.running && !s.loader.quiet(now) {
		check = min(check, s.stock.dueFrom(r, s.ahead(now, lowWater)))
	}
	r.check.Store(check)
}

// floor returns the [Floor] of the tag: how far it was loaded. Live is true, which means that the tag is not deleted.
func (s *supply) floor() Floor {
	f := Floor{End: s.stock.floor, Step: s.pace.configured, Live: true, Rules: s.rules.Load(), Era: s.era}
	if f.Rules == nil && s.isRuled {
		f.Rules = &noRules
	}
	return f
}

// addTo adds the figures of the tag to total, and returns how many IDs per second are requested of the tag.
func (s *supply) addTo(total *Stats, now time.Duration) (speed float64) {
	speed = s.pace.speed.at(now, s.asked())
	total.Tags++
	total.Waiting += s.waiters.len()
	total.Speed += speed
	total.SecondsLeft = min(total.SecondsLeft, s.lasts(now, speed))
	total.Loads += s.loader.loads
	total.Errors += s.loader.errs
	total.Waits += s.waiters.ever
	return speed
}

// stats returns the figures of the tag, without its name.
func (s *supply) stats(now time.Duration) TagStats {
	left, speed := s.stock.held(), s.pace.speed.at(now, s.asked())
	return TagStats{
		Strict: s.isStrict, Ranges: s.stock.ranges(), Left: left, Issued: s.stock.issued(),
		Speed: speed, SecondsLeft: s.lasts(now, speed),
		Configured: s.pace.configured, Step: s.ruled().Step(s.pace.step),
		Recommended: s.recommended(),
		Loads:       s.loader.loads, Errors: s.loader.errs, LastError: s.loader.lastErr,
		Waits: s.waiters.ever, Waiting: s.waiters.len(),
	}
}

// recommended returns the step with which a range lasts recommendedSpan at the highest speed measured, at most
// [Rules.Step]; 0 for a strict tag, which loads what is asked for.
func (s *supply) recommended() int64 {
	if s.isStrict {
		return 0
	}
	return s.ruled().Step(count(math.Ceil(recommendedSpan * s.pace.speed.peak)))
}

// idleFor is the time without requests after which a loose tag no longer counts as running out of IDs.
const idleFor = time.Minute

// lasts returns for how many seconds the IDs held last at the given speed. It is +Inf for a strict tag, which holds
// none, and for a tag that is not requested.
func (s *supply) lasts(now time.Duration, speed float64) float64 {
	isIdle := !s.waiters.any() && s.pace.speed.idle(now, s.asked()) >= idleFor
	if s.isStrict || speed <= 0 || isIdle {
		return math.Inf(1)
	}
	return float64(s.stock.held()) / speed
}

// quietTime is how long after a refusal by the store the tag is loaded only if a request waits.
const quietTime = time.Second

// A loader records the loads of one tag, of which at most one is under way.
type loader struct {
	running    bool  // a goroutine loads, or is about to
	loads      int64 // loads that succeeded
	errs       int64 // loads that failed
	fails      int   // failed loads in a row
	slowest    Slowest
	quietUntil time.Duration // until then a load begins only for a waiting request
	lastErr    error         // error of the last load, if a retry may succeed
	retry      *jitter.Backoff
}

// succeeded records a load and its duration.
func (l *loader) succeeded(took time.Duration) {
	l.loads++
	l.fails, l.retry, l.quietUntil, l.lastErr = 0, nil, 0, nil
	l.slowest.Note(took)
}

// failed records a load that may succeed when retried, and returns the pause before the retry.
func (l *loader) failed(err error) (pause time.Duration) {
	l.lastErr = err
	l.errs++
	l.fails++
	if l.retry == nil {
		l.retry = jitter.NewBackoff(10*time.Millisecond, 250*time.Millisecond)
	}
	return l.retry.NextBackOff()
}

// refused records that the store does not serve the tag.
func (l *loader) refused(now time.Duration) {
	l.errs++
	l.fails, l.retry, l.quietUntil, l.lastErr = 0, nil, now+quietTime, nil
}

// outdated records a refusal by the store that proves nothing: the tag was changed after its load had begun.
func (l *loader) outdated() {
	l.errs++
	l.lastErr = nil
}

// wake ends the time in which a load begins only for a waiting request.
func (l *loader) wake() { l.quietUntil = 0 }

// quiet reports whether a load may begin only for a waiting request.
func (l *loader) quiet(now time.Duration) bool { return now < l.quietUntil }

// failing reports whether two loads in a row have failed. One failure does not count: if this process paused for longer
// than a load may take, the load's timeout and its answer come at the same moment.
func (l *loader) failing() bool { return l.fails > 1 }

// notLoaded returns [ErrNotLoaded] with the cause, if there is one.
func (l *loader) notLoaded() error {
	if l.lastErr == nil {
		return ErrNotLoaded
	}
	return fmt.Errorf("%w: %w", ErrNotLoaded, l.lastErr)
}

// A pace records how fast the IDs of one tag are used, and computes the step from that.
type pace struct {
	speed      speedometer
	last       usage // how long the last range lasted; zero if no range was used up yet
	judged     bool  // the step was already computed from the field last
	step       int64 // of the next load; 0 before the first
	configured int64 // the tag's own step; 0 before the first load
}

// note takes a reading: asked is how many IDs were requested so far, used is the range used up since the last reading.
func (p *pace) note(now time.Duration, asked int64, used usage) {
	p.speed.note(now, asked)
	if used.ids > 0 {
		p.last, p.judged = used, false
	}
}

// nextStep returns the step of the next load. It changes the step at most once per range that is used up.
func (p *pace) nextStep(rule stepRule) int64 {
	if p.last.ids > 0 && !p.judged {
		p.step = rule.next(p.step, p.configured, p.last.of(p.step))
		p.judged = true
	}
	return p.step
}

// configure sets the tag's own step, as an operator configured it, from the next load on. If the own step was
// lowered, it replaces the current step, even one that had grown with the traffic.
func (p *pace) configure(step int64, rule stepRule) {
	switch {
	case step < 1 || step == p.configured:
	case step < p.configured:
		p.configured, p.step = step, step
	default:
		p.configured, p.step = step, rule.clamp(p.step, step)
	}
}

// A speedometer measures how fast the IDs of one tag are requested, from occasional readings of the number requested
// so far. Times are since the allocator was created.
type speedometer struct {
	prev, last reading
	peakFrom   reading
	peak       float64 // highest speed over peakSpan or more, IDs/s
}

type reading struct {
	at  time.Duration
	ids int64
}

const (
	// speedSpan is the shortest time over which the speed is measured: a batch counts as spread over that time.
	speedSpan = 100 * time.Millisecond
	// peakSpan is the shortest time over which the peak is measured.
	peakSpan = time.Second
)

func newSpeedometer(now time.Duration) speedometer {
	start := reading{at: now}
	return speedometer{prev: start, last: start, peakFrom: start}
}

// note takes a reading: ids is how many IDs were requested until now.
func (s *speedometer) note(now time.Duration, ids int64) {
	r := reading{now, ids}
	if now-s.last.at >= speedSpan {
		s.prev, s.last = s.last, r
	}
	if now-s.peakFrom.at >= peakSpan {
		s.peak = max(s.peak, speed(s.peakFrom, r, peakSpan))
		s.peakFrom = r
	}
}

// idle returns the time since the first reading that included the last request, a little less than the time since that
// request.
func (s *speedometer) idle(now time.Duration, ids int64) time.Duration {
	if ids != s.last.ids {
		s.note(now, ids)
		return 0
	}
	return now - s.last.at
}

// at returns the present speed in IDs per second, measured since the reading before the last one. Without requests it
// falls with time.
func (s *speedometer) at(now time.Duration, ids int64) float64 {
	return speed(s.prev, reading{now, ids}, speedSpan)
}

// speed returns the IDs per second between two readings, at least 0: the later reading lacks refused requests.
func speed(from, to reading, atLeast time.Duration) float64 {
	d := max(to.at-from.at, atLeast).Seconds()
	return max(0, float64(to.ids-from.ids)/d)
}

// count returns n as an integer, and the highest integer if n is above it.
func count(n float64) int64 {
	if n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// A stepRule computes the number of IDs that the next load of a tag reserves from how long the last range lasted, so
// that at any traffic a range lasts between time and twice time. It is Leaf's rule, in arithmetic that does not
// overflow.
type stepRule struct {
	// max is the highest step, at least 1. A tag whose configured step is higher keeps the configured step.
	max int64
	// time is how long a range should last at least, above 0.
	time time.Duration
}

// next returns the step after step. configured is the tag's own step, the lower bound of the result. lasted is how long
// a range of step IDs lasted: below r.time the step doubles, above twice r.time it halves, in between it stays. Idle
// time counts for the range in use, so a night without requests halves the step once.
func (r stepRule) next(step, configured int64, lasted time.Duration) int64 {
	switch {
	case lasted < r.time:
		step = double(step)
	case lasted-r.time > r.time: // 2*r.time might overflow
		step /= 2
	}
	return r.clamp(step, configured)
}

// clamp returns step, raised to configured, the tag's own step, or lowered to r.max.
func (r stepRule) clamp(step, configured int64) int64 {
	return max(configured, min(step, r.max))
}

func double(n int64) int64 {
	if n > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * n
}

// A usage is how long ids IDs lasted: of one range, or of several that a single request used up.
type usage struct {
	ids    int64
	lasted time.Duration
}

// of returns how long step IDs last at the same speed. A range is longer or shorter than the step if the step has
// just changed, or a large batch was requested. Computed from the unscaled duration, the step would double and
// halve for ever.
func (u usage) of(step int64) time.Duration {
	d := float64(u.lasted) * float64(step) / float64(u.ids)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
