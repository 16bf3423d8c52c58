package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// adminLimit is how many requests about tags may be under way at once.
const adminLimit = 16

// A tagAdmin serves the requests that create, change, delete and list tags, and those that set the throttle. At most
// adminLimit of them are under way at once. It is safe for concurrent use.
type tagAdmin struct {
	link  *link
	slots chan struct{}
}

func newTagAdmin(l *link) *tagAdmin {
	return &tagAdmin{link: l, slots: make(chan struct{}, adminLimit)}
}

// serve returns the JSON value that answers the request with the given body.
type serve func(ctx context.Context, body []byte) (any, error)

// handler returns a handler that answers with serve. Each request gets a goroutine, since it waits for the store.
func (a *tagAdmin) handler(serve serve) handler {
	return func(r request, m *nats.Msg) {
		err := a.link.Reasons.Forbidden(Tags)
		if err == nil && a.link.CannotLoad() != nil && !r.isRelayed() {
			err = segment.ErrElsewhere
		}
		if err != nil {
			r.turnAway(m, 0, err)
			return
		}
		select {
		case a.slots <- struct{}{}:
		default:
			r.refuse(subjects.Errorf(subjects.TooMany,
				"%d requests about tags are under way already", adminLimit))
			return
		}
		go func() {
			defer func() { <-a.slots }()
			a.answer(r, m, serve)
		}()
	}
}

func (a *tagAdmin) answer(r request, m *nats.Msg, serve serve) {
	ctx, cancel := context.WithTimeout(context.Background(), r.within)
	defer cancel()
	answer, err := serve(ctx, m.Data)
	a.log(r.at.name, m.Data, err)
	if err != nil {
		r.refuse(err)
		return
	}
	reply, err := json.Marshal(answer)
	if err != nil {
		r.refuse(err)
		return
	}
	r.respond(reply, 0)
}

func (a *tagAdmin) create(ctx context.Context, body []byte) (any, error) {
	c, err := wire.ParseTagCreate(body)
	if err != nil {
		return nil, err
	}
	rules := segment.Rules{
		Min: int64(c.Min), Max: int64(c.Max), MaxHole: int64(c.MaxHole), Period: segment.Period(c.Period), Zone: c.Zone,
		Strict: c.Strict,
	}
	if err := rules.Validate(); err != nil {
		return nil, err
	}
	t, err := a.link.Store.Create(ctx, segment.Tag{
		Name: c.Tag, Step: c.Step, MaxID: int64(c.Start), Description: c.Description, Rules: rules,
	}, true)
	return a.changed(c.Tag, t, err)
}

func (a *tagAdmin) update(ctx context.Context, body []byte) (any, error) {
	u, err := wire.ParseTagUpdate(body)
	if err != nil {
		return nil, err
	}
	c := segment.Change{Description: u.Description, Force: u.Force}
	if u.Step != nil {
		c.Step = *u.Step
	}
	if u.NextID != nil {
		c.MaxID = int64(*u.NextID)
	}
	if u.RaiseBy != nil {
		c.RaiseBy = int64(*u.RaiseBy)
	}
	if u.ChangesRules() {
		c.Rules = func(r segment.Rules) segment.Rules {
			if u.Max != nil {
				r.Max = int64(*u.Max)
			}
			if u.MaxHole != nil {
				r.MaxHole = int64(*u.MaxHole)
			}
			if u.MaxBatch != nil {
				r.MaxBatch = *u.MaxBatch
			}
			if u.Rate != nil {
				r.Rate = *u.Rate
			}
			return r
		}
	}
	t, err := a.link.Store.Update(ctx, u.Tag, c)
	return a.changed(u.Tag, t, err)
}

func (a *tagAdmin) remove(ctx context.Context, body []byte) (any, error) {
	d, err := wire.ParseTagDelete(body)
	if err != nil {
		return nil, err
	}
	err = a.link.Store.Delete(ctx, d.Tag)
	if _, err := a.changed(d.Tag, segment.Tag{Name: d.Tag, Disabled: true}, err); err != nil {
		return nil, err
	}
	t, err := a.link.Store.Look(ctx, d.Tag)
	if err != nil {
		return nil, fmt.Errorf("%w: the tag was deleted, and cannot be read: %w", segment.ErrUncertain, err)
	}
	return a.link.tagInfo(t), nil
}

// changed tells this worker of a change of a tag, and other workers by a message, and then returns the answer. If err
// is a refusal, the store has changed nothing. After any other error the change may have been made, so it is
// announced, too.
func (a *tagAdmin) changed(tag string, t segment.Tag, err error) (any, error) {
	if err != nil {
		if !isRefusal(err) {
			a.announce(tag)
		}
		return nil, ofStore(err)
	}
	a.link.Segments.See(t)
	a.announce(t.Name)
	return a.link.tagInfo(t), nil
}

// refusals are the errors of a store that has changed nothing.
var refusals = []error{segment.ErrInvalid, segment.ErrUnknownTag, segment.ErrExists}

func isRefusal(err error) bool {
	return !errors.Is(err, segment.ErrUncertain) &&
		slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}

// announce publishes to every worker, this one included, that a tag may have changed.
func (a *tagAdmin) announce(tag string) {
	if err := a.link.conn.Publish(wire.TagChanged(a.link.Namespace), []byte(tag)); err != nil {
		a.link.Log.Warn("a changed tag could not be announced; other workers see the change at their next load or poll",
			"tag", tag, "error", err)
	}
}

func (a *tagAdmin) list(ctx context.Context, body []byte) (any, error) {
	l, err := wire.ParseTagList(body)
	if err != nil {
		return nil, err
	}
	tags, err := a.find(ctx, l)
	if err != nil {
		return nil, ofStore(err)
	}
	return a.link.pageOf(tags, a.link.conn), nil
}

// find returns the tags that a listing asks for.
func (a *tagAdmin) find(ctx context.Context, l subjects.TagList) ([]segment.Tag, error) {
	if l.Tag == "" {
		return a.link.Store.List(ctx, l.After, l.Limit)
	}
	t, err := a.link.Store.Look(ctx, l.Tag)
	if errors.Is(err, segment.ErrUnknownTag) {
		return nil, nil
	}
	return []segment.Tag{t}, err
}

func tagInfo(t segment.Tag) subjects.TagInfo {
	info := subjects.TagInfo{
		Tag: t.Name, Step: t.Step, NextID: subjects.ID(t.MaxID),
		Description: t.Description, Updated: t.Updated, Disabled: t.Disabled,
		Min: subjects.ID(t.Rules.Min), Max: subjects.ID(t.Rules.Max), Period: string(t.Rules.Period),
		Zone: t.Rules.Zone, MaxHole: subjects.ID(t.Rules.MaxHole), Strict: t.Rules.Strict,
		MaxBatch: t.Rules.MaxBatch, Rate: t.Rules.Rate, MarkAhead: t.MarkAhead,
	}
	// Other programs write the table too, so it may have tags that no subject can name.
	if _, err := segment.Zone(t.Rules.Zone); err != nil {
		info.Unservable = "the worker that was asked lacks its time zone"
	}
	if e, ok := errors.AsType[*subjects.Error](subjects.CheckTag(t.Name)); ok {
		info.Unservable = e.Text
	} else if t.Step < 1 || t.MaxID < 1 {
		info.Unservable = "step and max_id must be at least 1"
	} else if t.Undecided {
		info.Unservable = wire.Undecided
	}
	return info
}

// log logs a request that changes tags, and how it ended. internal/loglimit passes each message about a change, and one
// a minute about refused requests.
func (a *tagAdmin) log(endpoint string, body []byte, err error) {
	if endpoint == listEndpoint || len(body) == 0 {
		return // it changes nothing
	}
	var about struct {
		Tag string `json:"tag"`
	}
	_ = json.Unmarshal(body, &about) // a malformed body is refused
	attrs := []any{"request", endpoint, "tag", about.Tag[:min(len(about.Tag), subjects.MaxTag)]}
	switch {
	case err == nil:
		a.link.Log.Info("tags changed", attrs...)
	case changedNothing(err):
		a.link.Log.Warn("a request about tags was refused", append(attrs, "error", err)...)
	default:
		a.link.Log.Warn("tags may have changed", append(attrs, "error", err)...)
	}
}

// changedNothing reports whether err says that a request changed no tag.
func changedNothing(err error) bool {
	e, ok := errors.AsType[*subjects.Error](err)
	return isRefusal(err) || ok && e.Code < subjects.Internal
}

// throttle sets the throttle, which is the most IDs per second of each tag; 0 ends the throttle.
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

// MinPayload is the least max_payload, in bytes, that the NATS server must have: statistics of the busiest tags take up
// to 45 kB.
const MinPayload = 64 << 10

// maxPage bounds a page of tags, in bytes, well below the 1 MB that NATS accepts by default. Further tags are on the
// next page.
const maxPage = 512 << 10

// pageOf returns the first of the tags that fit in one reply.
func (c *Config) pageOf(tags []segment.Tag, conn *nats.Conn) []subjects.TagInfo {
	page, room := []subjects.TagInfo{}, min(maxPage, int(conn.MaxPayload()))-len(`{"tags":[]}`)
	for _, t := range tags {
		info := c.tagInfo(t)
		body, _ := json.Marshal(info) // cannot fail: texts, numbers and a time
		if room -= len(body) + len(","); room < 0 {
			break
		}
		page = append(page, info)
	}
	return page
}
