package worker

import (
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A segmentHandler serves the requests of one subscription, one after another. It reuses its buffers, so that IDs from
// memory cost no allocation.
type segmentHandler struct {
	cfg    *Config
	ranges []segment.Range
	body   []byte
}

func (h *segmentHandler) handle(r request, m *nats.Msg) {
	tag := wire.Tag(h.cfg.Namespace, m.Subject)
	n, err := h.parse(tag, m)
	if err == nil && !r.isRelayed() { // the worker that relays has counted these IDs
		err = h.cfg.Limits.Admit(tag, n, r.came)
	}
	if err == nil {
		err = h.cfg.Reasons.Forbidden(Segment)
	}
	if err != nil {
		r.turnAway(m, n, err)
		return
	}
	h.ranges, err = h.cfg.Segments.Next(tag, int64(n), h.ranges[:0])
	switch {
	case err == nil:
		h.body = appendRanges(h.body[:0], h.ranges)
		r.respond(h.body, n)
	case errors.Is(err, segment.ErrWait) && r.isRelayed() && m.Header.Get(headerHeld) != "":
		r.answerUncounted(nats.Header{headerNotTaken: {"1"}}) // counts as no error: another worker may have the IDs
	case errors.Is(err, segment.ErrWait):
		h.park(r, m, tag, n)
	default:
		r.refuse(err)
	}
}

func (h *segmentHandler) parse(tag string, m *nats.Msg) (int, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return 0, err
	}
	n, err := parseCount(m, h.cfg.MaxBatch)
	if err == nil && isAhead(m) && h.cfg.Segments.IsStrict(tag) {
		err = errStrictPrefetch
	}
	return n, err
}

// isAhead reports whether the caller prefetches the IDs, to use them later.
func isAhead(m *nats.Msg) bool { return len(m.Header[subjects.HeaderPrefetch]) > 0 }

// errStrictPrefetch refuses to prefetch IDs of a strict tag: the caller could use them after higher IDs.
var errStrictPrefetch = subjects.Errorf(subjects.BadRequest,
	"this tag is strict, so its IDs cannot be fetched ahead: leave out the header "+subjects.HeaderPrefetch)

// parseCount returns how many IDs a request asks for.
func parseCount(m *nats.Msg, limit int) (int, error) {
	for _, age := range m.Header[subjects.HeaderPrefetch] {
		if err := wire.CheckPrefetch(age); err != nil {
			return 0, err
		}
	}
	return wire.ParseCount(m.Data, limit)
}

// park leaves the request to the allocator, which calls back by the deadline. The first load of a tag may reveal that
// the tag is strict, or has limits, so the callback checks both again.
func (h *segmentHandler) park(r request, m *nats.Msg, tag string, n int) {
	ids, parked, tag, ahead := h.cfg.Segments, r.park(), strings.Clone(tag), isAhead(m)
	err := ids.Park(tag, int64(n), func(ranges []segment.Range, err error) {
		if err == nil {
			err = h.cfg.Reasons.Forbidden(Segment) // the ranges are never issued
		}
		if err == nil && ahead && ids.IsStrict(tag) {
			err = errStrictPrefetch // here, too, the ranges are never issued
		}
		if err == nil {
			err = h.cfg.Limits.Fits(tag, n)
		}
		switch {
		case errors.Is(err, segment.ErrExhausted) && !r.isRelayed() && !ids.IsStrict(tag) &&
			!parked.at.link.spent.has(tag, n):
			header := relayTo(h.cfg.Registry())
			header.Set(headerHeld, "1")
			parked.relay(m, n, header, err)
		case err != nil:
			parked.turnAway(m, n, err)
		default:
			parked.respond(appendRanges(nil, ranges), n)
		}
	})
	if err != nil {
		r.turnAway(m, n, err)
	}
}

func appendRanges(body []byte, ranges []segment.Range) []byte {
	for _, rg := range ranges {
		body = subjects.AppendRun(body, subjects.ID(rg.Start), subjects.ID(rg.End-1))
	}
	return body
}

// A snowflakeHandler serves the requests of one subscription, one after another, and reuses its buffer.
type snowflakeHandler struct {
	cfg         *Config
	ids         *issuer.Issuer
	ns          subjects.Namespace
	maxBatch    int
	maxBusiness int64
	body        []byte
	wall        int64         // the last reading of the wall clock
	read        time.Duration // when the wall clock was read, by clock
}

// wallEvery is how long one reading of the wall clock serves all requests: reading it costs as much as the rest of
// issuing an ID. [issuer.Issuer.NextAt] says why this is safe.
const wallEvery = time.Millisecond

func newSnowflakeHandler(cfg *Config) *snowflakeHandler {
	return &snowflakeHandler{
		cfg: cfg, ids: cfg.Snowflakes, ns: cfg.Namespace, maxBusiness: cfg.Layout.MaxBusiness(),
		// A larger batch takes more than half the deadline to issue, which leaves too little time to the next requests.
		maxBatch: int(min(int64(cfg.MaxBatch), cfg.Layout.Yield(cfg.Deadline/2))),
		wall:     cfg.Snowflakes.Now(), read: clock(),
	}
}

// now returns the wall clock's time at which a request came, up to wallEvery old.
func (h *snowflakeHandler) now(came time.Duration) int64 {
	if came-h.read >= wallEvery {
		h.wall, h.read = h.ids.Now(), came
	}
	return h.wall
}

func (h *snowflakeHandler) handle(r request, m *nats.Msg) {
	business, n, err := h.parse(m)
	if err == nil {
		err = h.cfg.Reasons.Forbidden(Snowflake)
	}
	if err != nil {
		r.turnAway(m, n, err)
		return
	}
	runs, err := h.ids.NextAt(h.now(r.came), n)
	switch {
	case err == nil:
		if business != 0 { // to copy the runs costs as much as to issue them
			runs = runs.Of(business)
		}
		h.body = appendRuns(h.body[:0], runs)
		r.respond(h.body, n)
	case errors.Is(err, issuer.ErrWait):
		h.park(r.park(), m, business, n)
	default:
		r.refuse(err)
	}
}

func (h *snowflakeHandler) parse(m *nats.Msg) (business int64, n int, err error) {
	if text := wire.Business(h.ns, m.Subject); text != "" {
		if business, err = wire.ParseBusiness(text, h.maxBusiness); err != nil {
			return 0, 0, err
		}
	}
	n, err = parseCount(m, h.maxBatch)
	return business, n, err
}

// park leaves the request to the issuer, which calls back by the deadline.
func (h *snowflakeHandler) park(r request, m *nats.Msg, business int64, n int) {
	err := h.ids.Park(n, func(runs snowflake.Runs, err error) {
		if err == nil {
			err = h.cfg.Reasons.Forbidden(Snowflake) // the IDs are never used
		}
		if err != nil {
			r.turnAway(m, n, err)
			return
		}
		r.respond(appendRuns(nil, runs.Of(business)), n)
	})
	if err != nil {
		r.refuse(err)
	}
}

func appendRuns(body []byte, runs snowflake.Runs) []byte {
	for first, last := range runs.All() {
		body = subjects.AppendRun(body, first, last)
	}
	return body
}
