package worker

import (
	"context"
	"errors"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Direct answers requests for IDs that did not come over NATS, and whose callers may wait. They are served as those
// that did: from the same memory, refused for the same reasons and with the same codes, bounded by the same limits, and
// observed. Both laws of uniqueness hold below it, in [segment.Allocator] and [snowflake.Issuer]; like a handler it
// gives out no ID while a [Reason] forbids that. It is safe for concurrent use.
type Direct struct {
	cfg        Config
	snowflakes int // the largest batch
}

// NewDirect returns a Direct. It uses neither connection of the settings.
func NewDirect(cfg Config) *Direct {
	d := &Direct{cfg: cfg}
	d.cfg.fill()
	d.snowflakes = newSnowflakeHandler(&d.cfg).maxBatch
	return d
}

// A Refusal is why a request got no ID: the text for its caller, and the cause.
type Refusal struct {
	Said  *subjects.Error
	cause error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Said.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.cause }

// Segment appends IDs of a tag to dst, as the body of a reply. Their count is that of a request's body, empty for one.
// It waits for a load if it must, for the deadline at most. The error is a [*Refusal]. To answer from memory
// allocates nothing.
func (d *Direct) Segment(dst []byte, tag string, count []byte) ([]byte, error) {
	c := call{d: d, mode: Segment, came: clock()}
	n, err := 0, subjects.CheckTag(tag)
	if err == nil {
		n, err = subjects.ParseCount(count, d.cfg.MaxBatch)
	}
	if err == nil {
		err = d.cfg.admit(tag, n, c.came)
	}
	if err != nil {
		return dst, c.refuse(err)
	}
	var room [4]segment.Range
	ranges, err := d.cfg.Segments.Next(tag, int64(n), room[:0])
	if errors.Is(err, segment.ErrWait) {
		ranges, err = d.awaitRanges(&c, tag, n)
	}
	if err != nil {
		return dst, c.refuse(err)
	}
	c.close(subjects.OK, n)
	return appendRanges(dst, ranges), nil
}

// awaitRanges waits for a load. The IDs are a hole if the mode is forbidden before they come.
func (d *Direct) awaitRanges(c *call, tag string, n int) (ranges []segment.Range, err error) {
	c.parked = true
	if ranges, err = d.cfg.Segments.Take(context.Background(), tag, int64(n)); err == nil {
		err = d.cfg.Reasons.Forbidden(Segment)
	}
	return ranges, err
}

// Snowflake is Segment for snowflakes of business 0.
func (d *Direct) Snowflake(dst, count []byte) ([]byte, error) {
	c := call{d: d, mode: Snowflake, came: clock()}
	n, err := subjects.ParseCount(count, d.snowflakes)
	if err == nil {
		err = d.cfg.Reasons.Forbidden(Snowflake)
	}
	if err != nil {
		return dst, c.refuse(err)
	}
	runs, err := d.cfg.Snowflakes.Next(n)
	if errors.Is(err, snowflake.ErrWait) {
		runs, err = d.awaitRuns(&c, n)
	}
	if err != nil {
		return dst, c.refuse(err)
	}
	c.close(subjects.OK, n)
	return appendRuns(dst, runs.Of(0)), nil
}

// awaitRuns is awaitRanges for snowflakes.
func (d *Direct) awaitRuns(c *call, n int) (runs snowflake.Runs, err error) {
	c.parked = true
	answered := make(chan struct{})
	parked := d.cfg.Snowflakes.Park(n, func(got snowflake.Runs, why error) {
		runs, err = got, why
		close(answered)
	})
	if parked != nil {
		return snowflake.Runs{}, parked
	}
	<-answered
	if err == nil {
		err = d.cfg.Reasons.Forbidden(Snowflake)
	}
	return runs, err
}

// A call is one request of a Direct.
type call struct {
	d      *Direct
	mode   Mode
	came   time.Duration // by clock
	parked bool
}

func (c *call) refuse(err error) error {
	e := c.d.cfg.refusal(err)
	c.close(e.Code, 0)
	return &Refusal{e, err}
}

func (c *call) close(code subjects.Code, ids int) {
	c.d.cfg.Observe(Answer{Mode: c.mode, Code: code, IDs: ids, Parked: c.parked, Took: clock() - c.came})
}
