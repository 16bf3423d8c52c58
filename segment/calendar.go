package segment

import (
	"context"
	"time"
)

// recentFor is how long after its last request a tag counts as in use: then its next period is loaded ahead.
const recentFor = time.Hour

// keepCalendar takes IDs of past periods (days, months or years, after which the numbers of a tag begin again) out of
// memory, until ctx ends. It begins once a tag has a period. It wakes at each whole second of the wall clock: periods
// begin at whole seconds in every zone, and the clock may be set.
func (f *follower) keepCalendar(ctx context.Context) {
	select {
	case <-f.tags.dated:
	case <-ctx.Done():
	}
	for {
		now, _ := f.cfg.Clock()
		select {
		case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
		case <-ctx.Done():
			return
		}
		now, isSure := f.cfg.Clock()
		for _, b := range f.tags.withPeriods() {
			b.turn(now, isSure)
		}
	}
}

// turn takes IDs of past periods out of memory, even if the clock was not compared with other workers' yet: a wrong
// clock costs a hole at most. Just before a period begins, turn loads the first range of a loose tag that was requested
// lately, so that no request waits for that load.
func (b *buffer) turn(now time.Time, isSure bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, monotonic := &b.supply, b.set.clock.now()
	if s.closed || s.isStrict {
		return
	}
	// idle counts from the first reading after the last request; turn reads it each second.
	isRecent := s.loader.loads > 0 && s.pace.speed.idle(monotonic, s.asked()) < recentFor
	if s.stock.cut(s.ruled().Begins(now), monotonic) {
		s.reopen(monotonic)
	}
	if isSure && isRecent && s.fits() && s.stock.floor < s.ruled().Begins(now.Add(turnEarly)) && !s.loader.running {
		s.loader.running = b.set.source.start(b)
		s.setCheck(monotonic)
	}
}

// addPeriod adds the buffer of a daily, monthly or yearly tag to those that keepCalendar visits each second.
func (s *tagSet) addPeriod(b *buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.periods == nil {
		s.periods = make(map[*buffer]struct{})
		close(s.dated)
	}
	s.periods[b] = struct{}{}
}

// withPeriods returns the buffers of daily, monthly and yearly tags.
func (s *tagSet) withPeriods() (all []*buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.periods {
		all = append(all, b)
	}
	return all
}
