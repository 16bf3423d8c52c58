package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A Settings changes limits for all workers. Its methods return once the change is durable; the Gate of
// each worker follows. An [*subjects.Error] says why nothing was changed; after any other the change may have been
// made. They are safe for concurrent use.
type Settings interface {
	// SetLimit changes the limit of a tag, which need not exist; that of the tag "" holds for each tag.
	SetLimit(ctx context.Context, tag string, change func(*policy.Limit)) error
	// SetOrder makes a tag, which need not exist, strict or loose. For a strict one it returns nil once all workers
	// that are found have confirmed that they serve nothing that they had loaded before. A tag that was loose is strict
	// from a time on, that of others is zero. StrictFrom returns it.
	SetOrder(ctx context.Context, tag string, strict bool, from time.Time) error
	StrictFrom(tag string) time.Time
}

// limit changes the limits of a tag.
func (a *tagAdmin) limit(ctx context.Context, u subjects.TagUpdate) (any, error) {
	t, err := a.live(ctx, u.Tag)
	if err != nil {
		return nil, err
	}
	err = a.link.Settings.SetLimit(ctx, u.Tag, func(l *policy.Limit) {
		if u.MaxBatch != nil {
			l.MaxBatch = *u.MaxBatch
		}
		if u.Rate != nil {
			l.Rate = *u.Rate
		}
	})
	if err != nil {
		return nil, ofSettings(err)
	}
	return a.link.tagInfo(t), nil
}

// live returns a tag that is not deleted.
func (a *tagAdmin) live(ctx context.Context, tag string) (segment.Tag, error) {
	t, err := a.link.Store.Look(ctx, tag)
	if err == nil && t.Disabled {
		err = segment.ErrDisabled
	}
	return t, ofStore(err)
}

// order makes a tag strict or loose.
func (a *tagAdmin) order(ctx context.Context, u subjects.TagUpdate) (any, error) {
	t, err := a.live(ctx, u.Tag)
	if err != nil {
		return nil, err
	}
	from := strictFrom(ctx)
	if err := a.setOrder(ctx, u.Tag, *u.Order, from); err != nil {
		return nil, err
	}
	info := a.link.tagInfo(t)
	if info.Order, info.StrictFrom = "", nil; *u.Order == subjects.OrderStrict {
		info.Order, info.StrictFrom = subjects.OrderStrict, &from
	}
	return info, nil
}

// strictFrom returns from when on a tag is strict of which clients and workers may hold IDs: until then. All workers
// have confirmed it by the end of ctx, or it fails.
func strictFrom(ctx context.Context) time.Time {
	confirmed, ok := ctx.Deadline()
	if !ok {
		confirmed = time.Now().Add(confirmWithin)
	}
	return confirmed.Add(subjects.StrictAfter).UTC().Truncate(time.Second).Add(time.Second)
}

// confirmWithin is how long a request takes at most that has no deadline.
const confirmWithin = time.Minute

func (a *tagAdmin) setOrder(ctx context.Context, tag, order string, from time.Time) error {
	return ofSettings(a.link.Settings.SetOrder(ctx, tag, order == subjects.OrderStrict, from))
}

// throttle throttles each tag, or ends that.
func (a *tagAdmin) throttle(ctx context.Context, body []byte) (any, error) {
	t, err := subjects.ParseThrottle(body)
	if err != nil {
		return nil, err
	}
	if err := a.link.Settings.SetLimit(ctx, "", func(l *policy.Limit) { l.Rate = *t.Rate }); err != nil {
		return nil, ofSettings(err)
	}
	a.link.Log.Warn("an operator changed the throttle of each tag; 0 is none", "ids_per_second", *t.Rate)
	return t, nil
}

// ofSettings marks an error after which a change may have been made; nil stays nil.
func ofSettings(err error) error {
	if _, refused := err.(*subjects.Error); refused || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// TagInfo returns a tag as the worker lists it, with its limits. It is safe for concurrent use.
func (w *Worker) TagInfo(t segment.Tag) subjects.TagInfo { return w.cfg.tagInfo(t) }

func (c *Config) tagInfo(t segment.Tag) subjects.TagInfo {
	info, rules := tagInfo(t), c.Gate.Rules()
	info.MaxBatch, info.Rate, info.Throttle = rules[t.Name].MaxBatch, rules[t.Name].Rate, rules[""].Rate
	info.Hole = subjects.Decimal(c.Segments.MaxHole(t))
	if c.Segments.IsStrict(t.Name) {
		info.Order = subjects.OrderStrict
		if from := c.Settings.StrictFrom(t.Name); from.After(time.Now()) {
			info.StrictFrom = &from
		}
	}
	return info
}

// limitError returns how a limit refuses a request; nil if err is no limit's.
func limitError(err error) *subjects.Error {
	switch e := err.(type) {
	case *policy.BatchError:
		return &subjects.Error{Code: subjects.BadRequest, Text: e.Error(), MaxBatch: e.Max}
	case *policy.RateError:
		return &subjects.Error{
			Code: subjects.TooMany, Text: e.Error(), RetryAfter: wholeMillis(e.Wait),
		}
	}
	return nil
}
