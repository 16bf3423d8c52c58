package stage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// SourceHeader names the message that a copy was made of: the stream, when it was made,
// and the sequence.
const SourceHeader = "Natsid-Source"

// A Position is a message of a source. The zero value is before the first.
type Position struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
}

// String returns the text for [SourceHeader].
func (p Position) String() string {
	return p.Stream + " " + p.Created.UTC().Format(time.RFC3339Nano) + " " + strconv.FormatUint(p.Seq, 10)
}

// ParsePosition reads what String returns.
func ParsePosition(text string) (Position, error) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 || parts[0] == "" {
		return Position{}, fmt.Errorf("%.80q: want a stream, its time of creation, and a sequence", text)
	}
	created, err := time.Parse(time.RFC3339Nano, parts[1])
	if err != nil {
		return Position{}, fmt.Errorf("%.80q: the time of creation is malformed", text)
	}
	seq, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || seq == 0 {
		return Position{}, fmt.Errorf("%.80q: the sequence is malformed", text)
	}
	return Position{parts[0], created, seq}, nil
}

// A place is where to go on.
type place struct {
	last uint64   // of the target
	from Position // the last message of the source that is in the target
	end  uint64   // the last sequence of the source
}

// target returns the state of the target, which must be the stream it was.
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
			"what was copied is gone; start the stage again to copy all that the source holds",
			t.Created.UTC().Format(time.RFC3339), s.created.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// locate finds the position.
func (s *Stage) locate(ctx context.Context) (place, error) {
	t, err := s.target(ctx)
	if err != nil {
		return place{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	from, err := s.position(ctx, t)
	if err != nil {
		return place{}, err
	}
	src, err := s.cfg.Source.State(ctx)
	if err != nil {
		return place{}, err
	}
	switch {
	case from.Seq == 0:
		from = Position{Stream: s.cfg.SourceName, Created: src.Created, Seq: max(src.First, 1) - 1}
	case from.Stream != s.cfg.SourceName:
		return place{}, stop("the target's last message, %d, is a copy of stream %s, and not of %s: "+
			"give each source a target of its own", t.Last, from.Stream, s.cfg.SourceName)
	case !from.Created.Equal(src.Created):
		return place{}, stop("stream %s was deleted and made again (%v) since its message %d was copied: "+
			"copy the new one to a new target", from.Stream, src.Created.UTC().Format(time.RFC3339), from.Seq)
	case src.Last < from.Seq:
		return place{}, stop("stream %s was set back: it ends with message %d, and message %d was copied: "+
			"copy it to a new target", from.Stream, src.Last, from.Seq)
	case src.First > from.Seq+1:
		return place{}, gap(s.cfg.SourceName, from.Seq+1, src.First-1)
	}
	return place{t.Last, from, src.Last}, nil
}

func gap(stream string, first, last uint64) error {
	return stop("messages %d to %d of stream %s have left it before they were copied: "+
		"what remains can be copied to a new target; keep messages longer in the source", first, last, stream)
}

// position returns the last message of the source that is in the target; the zero
// Position if none is.
func (s *Stage) position(ctx context.Context, t TargetState) (Position, error) {
	switch {
	case t.Last == 0:
		return Position{}, nil
	case t.Gone:
		h, err := s.cfg.Target.Hint(ctx)
		if err != nil {
			return Position{}, err
		}
		//mutant:hint
		if h.Last != t.Last || !h.Created.Equal(t.Created) {
			return Position{}, stop("the target's last message, %d, has expired, and nothing else says how far "+
				"the source was copied (the hint is for message %d): copy to a new target", t.Last, h.Last)
		}
		return h.Position, nil
	}
	p, err := positionIn(t.Header) //mutant:position
	if err != nil {
		return Position{}, stop("message %d of the target is not from a stage: %v: "+
			"nothing else may publish to the target; copy to a new one", t.Last, err)
	}
	return p, nil
}

var errNoSource = errors.New("it has no header " + SourceHeader)

func positionIn(h nats.Header) (Position, error) {
	values := h[SourceHeader]
	if len(values) != 1 {
		return Position{}, errNoSource
	}
	return ParsePosition(values[0])
}
