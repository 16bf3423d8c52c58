package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

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
	return w.changed(c.Tag, t, err)
}

func (w *Worker) updateTag(ctx context.Context, body []byte) (any, error) {
	u, err := subjects.ParseTagUpdate(body)
	if err != nil {
		return nil, err
	}
	c := segment.Change{Description: u.Description}
	if u.Step != nil {
		c.Step = *u.Step
	}
	if u.MaxID != nil {
		c.MaxID = int64(*u.MaxID)
	}
	if u.RaiseBy != nil {
		c.RaiseBy = int64(*u.RaiseBy)
	}
	t, err := w.cfg.Store.Update(ctx, u.Tag, c)
	return w.changed(u.Tag, t, err)
}

func (w *Worker) deleteTag(ctx context.Context, body []byte) (any, error) {
	d, err := subjects.ParseTagDelete(body)
	if err != nil {
		return nil, err
	}
	if _, err := w.changed(d.Tag, segment.Tag{Name: d.Tag, Disabled: true}, w.cfg.Store.Delete(ctx, d.Tag)); err != nil {
		return nil, err
	}
	t, err := w.cfg.Store.Look(ctx, d.Tag)
	return tagInfo(t), ofStore(err)
}

// changed makes a change known: to this worker before the answer, to the others
// with a message. One that misses it sees the change when it next loads or polls.
// After an error that is no refusal it may have been made, too.
func (w *Worker) changed(tag string, t segment.Tag, err error) (any, error) {
	if err != nil {
		if !isRefusal(err) {
			w.tell(tag)
		}
		return nil, ofStore(err)
	}
	w.cfg.Segments.See(t)
	w.tell(t.Name)
	return tagInfo(t), nil
}

// isRefusal reports whether a store said that it changed nothing.
func isRefusal(err error) bool {
	for _, refusal := range []error{segment.ErrInvalid, segment.ErrUnknownTag, segment.ErrExists, segment.ErrUnguarded} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// tell says to every worker, this one included, that a tag may have changed.
func (w *Worker) tell(tag string) {
	if err := w.cfg.Conn.Publish(w.cfg.Namespace.TagChanged(), []byte(tag)); err != nil {
		w.cfg.Log.Warn("a change of a tag was not told to the other workers; they will see it when they next load or poll", "tag", tag, "error", err)
	}
}

// hear looks again at a tag that a message says was changed.
func (w *Worker) hear(m *nats.Msg) {
	tag := string(m.Data)
	if err := subjects.CheckTag(tag); err != nil {
		w.cfg.Log.Debug("a message names no tag", "subject", m.Subject, "error", err)
		return
	}
	w.cfg.Segments.Changed(tag)
}

// hearing is what a worker has of the messages about changed tags. Only the
// goroutine of Worker.Run uses it.
type hearing struct {
	w          *Worker
	sub        *nats.Subscription
	reconnects uint64
}

func (w *Worker) listen() (*hearing, error) {
	sub, err := w.cfg.Conn.Subscribe(w.cfg.Namespace.TagChanged(), w.hear)
	if err != nil {
		return nil, fmt.Errorf("worker: %s: %w", w.cfg.Namespace.TagChanged(), err)
	}
	return &hearing{w: w, sub: sub, reconnects: w.cfg.Conn.Stats().Reconnects}, nil
}

// follow has all tags looked at after a time without connection, in which
// messages were missed.
func (h *hearing) follow() {
	if n := h.w.cfg.Conn.Stats().Reconnects; n != h.reconnects {
		h.reconnects = n
		h.w.cfg.Segments.Refresh()
	}
}

func (h *hearing) stop() {
	// It fails only on a connection that is gone, and the subscription with it.
	_ = h.sub.Unsubscribe()
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
