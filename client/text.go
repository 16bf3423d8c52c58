package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

// A keptFormat is the format of a tag as a worker sent it.
type keptFormat struct {
	format   *format.Format
	revision string
}

// Format returns the format of the tag, which writes its IDs and reads their texts. It is requested once and kept;
// an answer with IDs says when it was changed, and the next call requests it again.
//
// The error is [ErrBadRequest] if the tag has no format, or one that a later version wrote, a [format.ErrNoKey] if its
// key is not in [FormatOptions], or is that of [Handle.Next].
func (h *Handle) Format(ctx context.Context) (*format.Format, error) {
	if h.fault != nil {
		return nil, refusal(h.fault)
	}
	t := h.target
	kept, said := t.format.Load(), t.revision.Load()
	if kept != nil && (said == nil || *said == kept.revision) {
		return kept.format, nil
	}
	tag, ok := strings.CutPrefix(t.subject, t.client.ns.Segment(""))
	if !ok {
		return nil, refusal(subjects.Errorf(subjects.BadRequest,
			"no format is kept for snowflakes: read one with format.Parse and format.Snowflakes"))
	}
	var sent subjects.TagFormat
	if err := t.client.json(ctx, t.client.ns.Format(tag), nil, &sent); err != nil {
		return nil, err
	}
	f, err := format.Parse(sent.Format, t.client.formats...)
	if err != nil {
		return nil, refusal(subjects.Errorf(subjects.BadRequest, "the format of tag %s cannot be read: %v", tag, err))
	}
	if err := f.CheckKey(); err != nil {
		return nil, fmt.Errorf("client: the format of tag %s: %w", tag, err)
	}
	t.format.Store(&keptFormat{f, sent.Revision})
	t.revision.CompareAndSwap(said, &sent.Revision)
	return f, nil
}

// NextText returns the text of one ID, by the format of the tag: see [Handle.Format], whose [format.Format.Read] is the
// way back. The ID is one of [Handle.Next], and errors are those of both; an ID that cannot be written is a hole, also
// where the key is missing.
func (h *Handle) NextText(ctx context.Context) (string, error) {
	ctx, cancel := h.target.client.bounded(ctx)
	defer cancel()
	id, err := h.Next(ctx)
	if err != nil {
		return "", err
	}
	f, err := h.Format(ctx)
	if err != nil {
		return "", err
	}
	text, err := f.Format(int64(id))
	if err != nil {
		return "", fmt.Errorf("client: ID %d of %s: %w", id, h.target.subject, err)
	}
	return text, nil
}

// noteFormat takes note of the revision of the format in an answer.
func (t *target) noteFormat(m *nats.Msg) {
	if m.Header == nil {
		return
	}
	revision := m.Header.Get(subjects.HeaderFormatRevision)
	if said := t.revision.Load(); revision != "" && (said == nil || *said != revision) {
		t.revision.Store(&revision)
	}
}
