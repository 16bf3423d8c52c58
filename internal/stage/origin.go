package stage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An origin is a source and its name. It finds which messages may be passed (not copied), and which have left the
// source before they were read.
type origin struct {
	Source
	name string
}

// at returns the state of the source. It returns an error if p is of another stream, or after the source's last
// message; that error is not a [Stop], as copy finds out whether the stage must stop.
func (o origin) at(ctx context.Context, p Position) (SourceState, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	src, err := o.State(ctx)
	switch {
	case err != nil:
		return src, doubted(err)
	case !p.isOf(o.name, src):
		return src, errors.New("the source was made again")
	case src.Last < p.Seq:
		return src, fmt.Errorf("the source ends with message %d, before message %d", src.Last, p.Seq)
	}
	return src, nil
}

// holds returns a [Stop] if position p, as the target shows it, does not belong to the source in state src: p is of
// another stream, or the source was set back, even if new messages followed.
func (o origin) holds(ctx context.Context, p Position, src SourceState) error {
	switch {
	case p.Stream != o.name:
		return stop("the target's last copy is of stream %s, and not of %s: give each source a target of its own",
			p.Stream, o.name)
	case !p.Created.Equal(src.Created):
		return stop("stream %s was deleted and made again (%v) since its message %d was copied: "+
			"copy the new one to a new target", o.name, src.Created.UTC().Format(time.RFC3339), p.Seq)
	case src.Last < p.Seq:
		return stop("stream %s was set back: it ends with message %d, and message %d was copied: "+
			"copy it to a new target", o.name, src.Last, p.Seq)
	case p.Time.IsZero():
		return nil
	}
	at, err := o.TimeOf(ctx, p.Seq)
	//mutant:same
	if err == nil && !at.IsZero() && !at.Equal(p.Time) {
		return stop("stream %s was set back and written again: its message %d is of %v, and the one that was copied "+
			"was of %v: copy it to a new target", o.name, p.Seq, at, p.Time)
	}
	return err
}

// look passes the messages after a position (leaves them uncopied) if no filter selects any of them, and reports
// whether there is a message to be read. Without look the position would stay far behind where few messages are
// selected. Once unselected messages had expired, the stage could not distinguish them from selected messages that
// expired unread.
//
// Two readings of the source's state prove that no selected message is passed. In the first reading End (the last
// selected message, read after Last) is not after the position: so the source holds no selected message from there to
// Last. In the second reading First is not beyond the sequence after the position: so no message after the position
// has left the source.
func (o origin) look(ctx context.Context, at *Position) (more bool, err error) {
	src, err := o.at(ctx, *at)
	//mutant:end
	if err != nil || src.Last == at.Seq || src.End > at.Seq {
		return src.End > at.Seq, err
	}
	later, err := o.at(ctx, *at)
	if err != nil {
		return false, err
	}
	//mutant:leader
	if later.Leader != src.Leader {
		return false, errors.New("the source has another leader")
	}
	//mutant:later
	if later.First > at.Seq+1 {
		return false, fmt.Errorf("message %d has left the source before it was looked at", at.Seq+1)
	}
	at.Seq, at.Time = src.Last, src.LastTime //mutant:pass
	return false, nil
}

// follows returns why message m cannot be copied as the next one after a position, the parameter to: messages in
// between have left the source unread. Messages deleted one by one do not count. The error is not a [Stop]: another
// stage may have copied the messages, as the target would show.
func (o origin) follows(ctx context.Context, to Position, m Message) error {
	last := to.Seq
	switch {
	case m.Seq <= last:
		return fmt.Errorf("message %d came after message %d", m.Seq, last)
	case m.Seq == last+1:
		return nil
	}
	src, err := o.at(ctx, to.of(&m))
	if err != nil {
		return err
	}
	//mutant:gap
	if src.First > last+1 {
		return fmt.Errorf("message %d came after message %d, and the source begins with %d", m.Seq, last, src.First)
	}
	return nil
}
