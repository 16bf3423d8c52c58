package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// SourceHeader names the original of a copy: the stream, its time of creation, the sequence, and the time of the
// message.
const SourceHeader = "Natsid-Source"

// A Position identifies a message of a source. The zero value is before the first message.
type Position struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"` // of the message; zero before the first one
}

// String returns the text for [SourceHeader].
func (p Position) String() string {
	return p.Stream + " " + p.Created.UTC().Format(time.RFC3339Nano) + " " + strconv.FormatUint(p.Seq, 10) + " " +
		p.Time.UTC().Format(time.RFC3339Nano)
}

// ParsePosition reads the text of Position.String.
func ParsePosition(text string) (Position, error) {
	parts := strings.Split(text, " ")
	if len(parts) == 4 && parts[0] != "" {
		created, none := time.Parse(time.RFC3339Nano, parts[1])
		seq, err := strconv.ParseUint(parts[2], 10, 64)
		at, never := time.Parse(time.RFC3339Nano, parts[3])
		if none == nil && err == nil && never == nil && seq > 0 {
			return Position{parts[0], created, seq, at}, nil
		}
	}
	return Position{}, fmt.Errorf("%.80q: want a stream, its time of creation, a sequence, and a time", text)
}

// A place is where copying continues.
type place struct {
	last    uint64   // last sequence of the target
	removed bool     // message last was removed, and an operator's hint is the position
	from    Position // the last message of the source that was copied or passed
	end     uint64   // sequence of the last message of the source that is to be read
}

func (p place) behind() uint64 { return p.end - min(p.end, p.from.Seq) }

// target returns the state of the target, or a [Stop] if the stream was deleted and made again since the first call.
func (s *Stage) target(ctx context.Context) (TargetState, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	t, err := s.cfg.Target.State(ctx)
	if err != nil {
		return t, err
	}
	if s.created.IsZero() {
		s.created = t.Created
	}
	if !s.created.Equal(t.Created) {
		return t, stop("the target was deleted and made again while it was written (%v, before %v): "+
			"the copies are gone; start the stage again to copy all that the source holds",
			t.Created.UTC().Format(time.RFC3339), s.created.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// locate returns where copying continues, or a [Stop] if it must not continue.
func (s *Stage) locate(ctx context.Context) (place, error) {
	t, err := s.target(ctx)
	if err != nil {
		return place{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	src, err := s.cfg.Source.State(ctx)
	if err != nil {
		return place{}, err
	}
	from, err := s.position(ctx, t, src)
	if err != nil {
		return place{}, err
	}
	if err := s.origin.holds(ctx, from, src); err != nil {
		return place{}, err
	}
	if src.First > from.Seq+1 {
		if now, err := s.target(ctx); err != nil || now.Last != t.Last {
			return place{}, cmp.Or(err, ErrFenced)
		}
		return place{}, gap(s.cfg.SourceName, from.Seq+1, src.First-1)
	}
	if t.Last > 0 && !s.cfg.Since.IsZero() {
		s.unused.Do(func() {
			s.cfg.Log.Warn("--since has no effect: it is known how far the source was copied", "position", from.Seq)
		})
	}
	return place{t.Last, t.Removed, from, src.End}, nil
}

func gap(stream string, first, last uint64) error {
	return stop("messages %d to %d of stream %s have left it before they were copied: "+
		"`natsid stamp repair` lets stages continue without them; keep messages longer in the source",
		first, last, stream)
}

// position returns the last message of the source that was copied, or passed: not copied on purpose.
func (s *Stage) position(ctx context.Context, t TargetState, src SourceState) (Position, error) {
	var copied Position
	var foreign error // why the last message is not from a stage
	if t.Last > 0 && !t.Expired {
		p, err := positionIn(t.Header) //mutant:position
		if err == nil && p.Seq >= src.End && p.Seq+1 >= src.First {
			return p, nil
		}
		copied, foreign = p, err
	}
	h, err := s.hint(ctx)
	//mutant:hint
	isCurrent := err == nil && h.Last == t.Last && h.Created.Equal(t.Created) && (h.Repaired || !t.Removed)
	switch {
	case t.Last == 0 && isCurrent && h.Position.isOf(s.cfg.SourceName, src):
		return h.Position, nil
	case t.Last == 0:
		return s.beginning(ctx, src)
	case err != nil && (t.Expired || foreign != nil || copied.Seq+1 < src.First):
		return copied, err
	case foreign != nil && !isCurrent:
		return copied, stop("message %d of the target is not from a stage: %v: nothing else may publish to it; "+
			"`natsid stamp repair` lets stages continue", t.Last, foreign)
	case t.Removed && !isCurrent:
		return copied, stop("the target's last message, %d, was removed: see `natsid stamp repair`", t.Last)
	case t.Expired && !isCurrent:
		return copied, stop("the target's last message, %d, was removed, or has expired, and no hint says how far "+
			"the source was copied (one is for message %d): see `natsid stamp repair`", t.Last, h.Last)
	case foreign != nil || t.Expired || isCurrent && h.Position.Seq > copied.Seq && h.Position.isOf(copied.Stream, src):
		copied = h.Position
	}
	return copied, nil
}

// hint reads the stored position that counts where the target's messages show none. Most stages do not need it, so the
// wait is short.
func (s *Stage) hint(ctx context.Context) (Hint, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.cfg.Target.Hint(ctx)
}

// of returns the position of a message of the same source.
func (p Position) of(m *Message) Position { return Position{p.Stream, p.Created, m.Seq, m.Time} }

// isOf reports whether a position belongs to this stream, not to a deleted one of the same name.
func (p Position) isOf(stream string, src SourceState) bool {
	return p.Stream == stream && p.Created.Equal(src.Created)
}

// beginning returns the position of a stage that has copied nothing yet: before the first message that is not older
// than [Config].Since.
func (s *Stage) beginning(ctx context.Context, src SourceState) (Position, error) {
	p := Position{Stream: s.cfg.SourceName, Created: src.Created, Seq: max(src.First, 1) - 1}
	if s.cfg.Since.IsZero() {
		return p, nil
	}
	before, err := s.cfg.Source.Before(ctx, s.cfg.Since)
	p.Seq = max(p.Seq, before)
	return p, err
}

func positionIn(h nats.Header) (Position, error) {
	values := h[SourceHeader]
	if len(values) != 1 {
		return Position{}, errors.New("it has no header " + SourceHeader)
	}
	return ParsePosition(values[0])
}
