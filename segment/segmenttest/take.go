package segmenttest

import (
	"context"
	"errors"

	"github.com/natsid/natsid/segment"
)

// Take returns n IDs of the tag, n 1..[segment.MaxStep], and waits for a load if necessary: it is
// [segment.Allocator.Next] and [segment.Allocator.Park] for callers that may block. It returns their errors, or that of
// ctx if ctx ends first; IDs that arrive later are a hole.
func Take(ctx context.Context, a *segment.Allocator, tag string, n int64) ([]segment.Range, error) {
	ranges, err := a.Next(tag, n, nil)
	if !errors.Is(err, segment.ErrWait) {
		return ranges, err
	}
	type answer struct {
		ranges []segment.Range
		err    error
	}
	answers := make(chan answer, 1)
	if err := a.Park(tag, n, func(r []segment.Range, err error) { answers <- answer{r, err} }); err != nil {
		return nil, err
	}
	select {
	case got := <-answers:
		return got.ranges, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
