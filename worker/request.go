package worker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A request is one that must be answered, with IDs or with a code.
type request struct {
	w      *Worker
	mode   Mode
	reply  string
	inline micro.Request // until the handler returns; nil once parked
	parked time.Time     // when it began to wait; zero if it did not
}

// accept counts a request in. A message that nobody waits for the answer of is
// dropped, before it costs an ID.
func (w *Worker) accept(mode Mode, req micro.Request) (request, bool) {
	if req.Reply() == "" {
		return request{}, false
	}
	w.open.Add(1)
	w.arrived.Add(1)
	return request{w: w, mode: mode, reply: req.Reply(), inline: req}, true
}

// park returns the request as one that begins to wait, and outlives its
// handler.
func (r request) park() request {
	r.inline, r.parked = nil, time.Now()
	return r
}

// respond answers with a body that holds n IDs.
func (r request) respond(body []byte, n int) {
	err := r.w.cfg.Conn.Publish(r.reply, body)
	if errors.Is(err, nats.ErrMaxPayload) {
		r.refuse(subjects.Errorf(subjects.BadRequest, "the reply would have %d bytes, more than this NATS takes: ask for less", len(body)))
		return
	}
	r.sent(err)
	r.close(subjects.OK, n)
}

// refuse answers with the code for err, and no ID.
func (r request) refuse(err error) {
	e := r.w.wireError(err)
	if r.inline != nil {
		// So that `nats micro stats` counts it. It may only be used while the
		// handler runs: the service reads it after that.
		r.sent(r.inline.Error(e.Code.String(), e.Text, nil))
	} else {
		r.sent(r.w.cfg.Conn.PublishMsg(&nats.Msg{Subject: r.reply, Header: nats.Header{
			subjects.HeaderErrorCode: {e.Code.String()},
			subjects.HeaderError:     {e.Text},
		}}))
	}
	r.close(e.Code, 0)
}

func (r request) sent(err error) {
	if err != nil {
		r.w.cfg.Log.Debug("a reply was not sent", "error", err)
	}
}

func (r request) close(code subjects.Code, ids int) {
	a := Answer{Mode: r.mode, Code: code, IDs: ids}
	if !r.parked.IsZero() {
		a.Parked, a.Waited = true, time.Since(r.parked)
	}
	r.w.cfg.Observe(a)
	r.w.open.Add(-1)
}

// A segmentTaker serves the requests of one subscription, one after the other,
// with buffers that are used again for each: what is in memory is answered
// without allocating for the IDs.
type segmentTaker struct {
	w      *Worker
	ranges []segment.Range
	body   []byte
}

func (t *segmentTaker) handle(req micro.Request) {
	r, ok := t.w.accept(Segment, req)
	if !ok {
		return
	}
	tag := t.w.cfg.Namespace.Tag(req.Subject())
	n, err := t.parse(tag, req.Data())
	if err == nil {
		t.ranges, err = t.w.cfg.Segments.Next(tag, int64(n), t.ranges[:0])
	}
	switch {
	case err == nil:
		t.body = appendRanges(t.body[:0], t.ranges)
		r.respond(t.body, n)
	case errors.Is(err, segment.ErrWait):
		t.park(r.park(), tag, n)
	default:
		r.refuse(err)
	}
}

func (t *segmentTaker) parse(tag string, body []byte) (int, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return 0, err
	}
	return subjects.ParseCount(body, t.w.cfg.MaxBatch)
}

// park leaves the request to the allocator, which answers it by the deadline.
func (t *segmentTaker) park(r request, tag string, n int) {
	err := t.w.cfg.Segments.Park(tag, int64(n), func(ranges []segment.Range, err error) {
		if err != nil {
			r.refuse(err)
			return
		}
		r.respond(appendRanges(nil, ranges), n)
	})
	if err != nil {
		r.refuse(err)
	}
}

func appendRanges(body []byte, ranges []segment.Range) []byte {
	for _, rg := range ranges {
		body = subjects.AppendRun(body, rg.Start, rg.End-1)
	}
	return body
}

// A flakeTaker is the snowflakes' segmentTaker.
type flakeTaker struct {
	w    *Worker
	body []byte
}

func (t *flakeTaker) handle(req micro.Request) {
	r, ok := t.w.accept(Snowflake, req)
	if !ok {
		return
	}
	business, n, err := t.parse(req)
	var runs snowflake.Runs
	if err == nil {
		runs, err = t.w.cfg.Snowflakes.Next(n)
	}
	switch {
	case err == nil:
		t.body = appendRuns(t.body[:0], runs.Of(business))
		r.respond(t.body, n)
	case errors.Is(err, snowflake.ErrWait):
		t.park(r.park(), business, n)
	default:
		r.refuse(err)
	}
}

func (t *flakeTaker) parse(req micro.Request) (business int64, n int, err error) {
	if text := t.w.cfg.Namespace.Business(req.Subject()); text != "" {
		if business, err = subjects.ParseBusiness(text, t.w.cfg.Layout.MaxBusiness()); err != nil {
			return 0, 0, err
		}
	}
	n, err = subjects.ParseCount(req.Data(), t.w.maxFlake)
	return business, n, err
}

// park leaves the request to the issuer, which answers it by the deadline.
func (t *flakeTaker) park(r request, business int64, n int) {
	err := t.w.cfg.Snowflakes.Park(n, func(runs snowflake.Runs, err error) {
		if err != nil {
			r.refuse(err)
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

// admins serves requests about tags: each on a goroutine of its own, since
// they ask the store, and only so many at once.
func (w *Worker) admins(f func(ctx context.Context, body []byte) (any, error)) micro.HandlerFunc {
	return func(req micro.Request) {
		r, ok := w.accept(Tags, req)
		if !ok {
			return
		}
		select {
		case w.admin <- struct{}{}:
		default:
			r.refuse(subjects.Errorf(subjects.TooMany, "%d requests about tags are under way already: retry later", adminLimit))
			return
		}
		body := req.Data()
		r.inline = nil
		go func() {
			defer func() { <-w.admin }()
			ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Deadline)
			defer cancel()
			answer, err := f(ctx, body)
			if err == nil {
				body, err = json.Marshal(answer)
			}
			if err != nil {
				r.refuse(err)
				return
			}
			r.respond(body, 0)
		}()
	}
}

func (w *Worker) createTag(ctx context.Context, body []byte) (any, error) {
	c, err := subjects.ParseTagCreate(body)
	if err != nil {
		return nil, err
	}
	t, err := w.cfg.Store.Create(ctx, segment.Tag{Name: c.Tag, Step: c.Step, MaxID: int64(c.Start), Description: c.Description}, true)
	return tagInfo(t), ofStore(err)
}

func (w *Worker) listTags(ctx context.Context, body []byte) (any, error) {
	l, err := subjects.ParseTagList(body)
	if err != nil {
		return nil, err
	}
	page, err := w.cfg.Store.List(ctx, l.After, l.Limit)
	if err != nil {
		return nil, ofStore(err)
	}
	infos := make([]json.RawMessage, 0, len(page))
	for size, i := 0, 0; i < len(page) && size < maxPage; i++ {
		info := tagInfo(page[i])
		if l.Stats {
			w.addStats(&info, page[i])
		}
		one, err := json.Marshal(info)
		if err != nil {
			return nil, err
		}
		infos = append(infos, one)
		size += len(one)
	}
	return infos, nil
}

// maxPage bounds a page of tags, in bytes, well below the megabyte that NATS
// carries by default. What does not fit is on the next page.
const maxPage = 512 << 10

func tagInfo(t segment.Tag) subjects.TagInfo {
	info := subjects.TagInfo{
		Tag: t.Name, Step: t.Step, MaxID: subjects.Decimal(t.MaxID),
		Description: t.Description, Updated: t.Updated, Disabled: t.Disabled,
	}
	// A table that others made may have rows that no subject can name.
	if e, ok := errors.AsType[*subjects.Error](subjects.CheckTag(t.Name)); ok {
		info.Unservable = e.Text
	} else if t.Step < 1 || t.MaxID < 1 {
		info.Unservable = "step and max_id must be at least 1"
	}
	return info
}
