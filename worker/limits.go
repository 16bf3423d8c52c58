package worker

import (
	"context"
	"fmt"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// throttle sets the rate that holds for each tag; 0 ends it.
func (a *tagAdmin) throttle(ctx context.Context, body []byte) (any, error) {
	t, err := wire.ParseThrottle(body)
	if err != nil {
		return nil, err
	}
	if err := a.link.SetThrottle(ctx, *t.Rate); err != nil {
		return nil, fmt.Errorf("%w: %w", segment.ErrUncertain, err)
	}
	a.link.Log.Warn("an operator changed the throttle of each tag; 0 is none", "ids_per_second", *t.Rate)
	return t, nil
}

// TagInfo returns a tag as the worker lists it, with its limits. It is safe for concurrent use.
func (w *Worker) TagInfo(t segment.Tag) subjects.TagInfo { return w.cfg.tagInfo(t) }

func (c *Config) tagInfo(t segment.Tag) subjects.TagInfo {
	info := tagInfo(t)
	info.Throttle = c.Limits.Throttle()
	return info
}

// limitError returns the reply to a request that a limit refused with err; nil if err is not a limit's.
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
