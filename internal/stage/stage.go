// Package stage copies a JetStream stream to another, each message with an ID, exactly once for as long as the target
// stream lives.
//
// # The law
//
// The target's last message shows the position, how far the source is copied: its header [SourceHeader] names the
// original in the source, and the original's time. If the source's message of that sequence has another time, the
// source was set back. The only other position is a [Hint] that was written after the target's last message. The hint
// is used if that message has expired, or if messages after the original were passed (not copied). A batch is one
// atomic write, which fails unless the target still ends with the message that showed the position. So the batch
// lands right after that message as a whole, or not at all.
//
// By induction, the target holds the messages of the source in their order, each once: whatever is lost, late or
// doubled on the way, and however many stages run. Of two stages only one can write after a given message; JetStream
// refuses the other's write (the fence). A write of unknown outcome is never repeated: the stage reads the position
// again, which shows the outcome. The fence refuses a write that arrives late.
//
// A message is passed, not copied, if no filter selects it, or if it became a dead letter that JetStream has
// acknowledged. Unselected messages are passed only if the source holds no selected message after the position, and
// no message after the position has left the source unread: see look.
//
// If the target's last message is not a copy, was removed, or expired without a hint, only people can know whether a
// copy is gone. If no copy is gone, an operator may store a hint, which Status proposes.
//
// Messages are passed only if one leader, which has all messages of the source, gave all answers: see infoOf. A stage
// stops for good only when JetStream gave the reason three times, over a longer time than a deposed leader answers:
// see sure.
//
// The IDs come from package client, so that no two messages have the same ID. The IDs of a batch that did not land
// are never used.
//
// The law assumes that the target loses no acknowledged write; that it has no subject transform, which would disable
// the fence; and that only stages write to it. The stage refuses a target whose settings show otherwise.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// A Message is a message of the source.
type Message struct {
	Seq     uint64
	Time    time.Time // when the stream stored it
	Pending uint64    // number of messages after it, when it was delivered
	Subject string
	Header  nats.Header
	Data    []byte
}

// A SourceState is the range of messages in a source. A message that a filter of the stage matches is selected.
type SourceState struct {
	Created     time.Time
	First, Last uint64    // sequences of the first and the last message, selected or not
	LastTime    time.Time // of message Last
	End         uint64    // sequence of the last selected message, read after Last; 0 if there is none
	Leader      string    // which server answered, and since when it leads the stream
}

// A Source is the stream to copy. Its methods return when ctx ends, at the latest.
type Source interface {
	State(ctx context.Context) (SourceState, error)
	// TimeOf returns when the stream stored a message; the zero time if the stream does not hold it.
	TimeOf(ctx context.Context, seq uint64) (time.Time, error)
	// Before returns the sequence of the last message before time t.
	Before(ctx context.Context, t time.Time) (uint64, error)
	// Open returns a Reader of the messages after a sequence, in order.
	Open(ctx context.Context, after uint64) (Reader, error)
}

// A Reader reads a source. Next waits until there is a message or ctx ends.
type Reader interface {
	Next(ctx context.Context) (Message, error)
	Close()
}

// A TargetState is the position as stored in the target itself.
type TargetState struct {
	Created time.Time
	First   uint64      // all messages before it are gone
	Last    uint64      // the last sequence; 0 means that no message was ever written
	Header  nats.Header // of message Last
	Expired bool        // message Last is gone: it has expired, or was removed
	Removed bool        // message Last was removed: it cannot have expired while earlier messages remain
}

// A Target is the stream that is written to.
type Target interface {
	// State returns the position; or, as a [Stop], why the stream cannot be a target.
	State(ctx context.Context) (TargetState, error)
	// Header returns the headers of a message, and whether the stream holds it.
	Header(ctx context.Context, seq uint64) (h nats.Header, held bool, err error)
	// Prepare sends the messages of a Write in advance, without the commit, perhaps while the previous batch is still
	// being written. Write is called only once the previous batch is known to be stored. The error is a [Stop] if the
	// messages are refused for good.
	Prepare(msgs []*nats.Msg, last uint64) error
	// Write writes all of the prepared messages, or none, after the sequence last. The error is ErrFenced if last is
	// not the last sequence; a [Stop] if the write is refused for good; after any other error the outcome is unknown.
	Write(ctx context.Context, msgs []*nats.Msg, last uint64) error
	// Hint returns the hint that SetHint has stored; the zero Hint if none.
	Hint(ctx context.Context) (Hint, error)
	// SetHint stores a hint, unless the stored one is newer: a stage that was paused may call late.
	SetHint(ctx context.Context, h Hint) error
}

// A Hint is a position that the target's last message does not show: because that message has expired, or because
// messages of the source were passed (not copied) after it. A Hint counts only if Last is the target's last sequence:
// then nothing was written since.
type Hint struct {
	Last     uint64    `json:"last"`
	Created  time.Time `json:"created"` // of the target
	Position Position  `json:"position"`
	// Repaired means that an operator stored the hint, and knows which messages were removed at the target's end. If
	// the target's last message was removed, only a repaired hint counts: any other may include a copy that is gone.
	Repaired bool `json:"repaired,omitempty"`
}

// isNewer reports whether h is for later messages than old, or for messages of another source. If both are for the
// same message of the target, a repaired hint is newer.
func (h Hint) isNewer(old Hint) bool {
	p, q := h.Position, old.Position
	by := cmp.Or(h.Created.Compare(old.Created), cmp.Compare(h.Last, old.Last))
	if by == 0 && h.Repaired != old.Repaired {
		return h.Repaired
	}
	return by > 0 || by == 0 && (p.Stream != q.Stream || !p.Created.Equal(q.Created) || p.Seq > q.Seq)
}

// ErrFenced is returned by [Target.Write] if the target was changed since the position was read.
var ErrFenced = errors.New("stage: the target has changed: another stage copies, or messages were removed")

// A Stop is an error that a retry cannot fix. Its text states the remedy.
type Stop struct{ Why string }

// Error implements error.
func (s *Stop) Error() string { return s.Why }

func stop(format string, args ...any) error { return &Stop{fmt.Sprintf(format, args...)} }

// Config is the settings of a [Stage]. The fields down to Fits must be set.
type Config struct {
	Source     Source
	SourceName string // of the stream
	Target     Target
	// Stamp gives messages IDs, as [stamp.Stamper.Msgs] does.
	Stamp   func(ctx context.Context, msgs []*nats.Msg) error
	Subject func(string) string // the subject of a copy; "" if there is none
	// Fits returns which limit of the target a copy exceeds with its ID; nil if none.
	Fits func(copied *nats.Msg) error

	Existing    Existing
	DeadLetters DeadLetters // nil: a message that cannot be copied stops the stage
	Since       time.Time   // if no position is known, pass messages older than this
	Once        bool        // Run returns when all messages that the source holds are copied
	// Settle is the pause before JetStream is asked a second time whether the stage must stop, and half the pause
	// before the third time. 0 means that one answer is enough: JetStream is a single server, whose answers are never
	// out of date.
	Settle time.Duration
	Log    *slog.Logger
}

// A Stage copies a source to a target. Its methods are safe for concurrent use; Run is called once.
type Stage struct {
	unused   sync.Once // logs once that Since has no effect
	cfg      Config
	created  time.Time // of the target, once it is known
	silences int       // how many readers in a row delivered nothing; only the gathering goroutine uses it
	doubts   doubts
	origin   origin

	mu       sync.Mutex
	progress Progress
}

// New returns a stage that is not running yet.
func New(cfg Config) *Stage {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Stage{cfg: cfg, doubts: doubts{settle: cfg.Settle}, origin: origin{cfg.Source, cfg.SourceName},
		progress: Progress{Role: Starting}}
}

// Run copies until ctx ends, or until all is copied if [Config].Once is set. In both cases it returns nil; its only
// error is a [Stop].
func (s *Stage) Run(ctx context.Context) error {
	pauses := jitter.NewBackoff(100*time.Millisecond, 2*time.Second)
	for {
		before := s.Progress().Copied
		err := s.copy(ctx)
		if s.Progress().Copied > before {
			pauses.Reset()
		}
		_, stopped := errors.AsType[*Stop](err)
		switch {
		case stopped:
			return err
		case ctx.Err() != nil || errors.Is(err, errDone):
			return nil
		case errors.Is(err, ErrFenced):
			s.cfg.Log.Info("another stage copies to the target, or messages were removed; this one stands by")
			s.note(func(p *Progress) { p.Role, p.Why = Standby, "" })
			s.standBy(ctx)
		default:
			pause := pauses.NextBackOff()
			s.cfg.Log.Warn("copying was interrupted; the position is read again", "error", err, "in", pause)
			s.note(func(p *Progress) {
				p.Role, p.Why, p.Since, p.Retries = Retrying, err.Error(), time.Now(), p.Retries+1
			})
			sleep(ctx, pause)
		}
	}
}

// errDone ends a stage that has copied all.
var errDone = errors.New("stage: all is copied")

// answersWithin bounds each request to JetStream: a request under way when a connection broke is lost, and gets no
// answer.
const answersWithin = 5 * time.Second

// checkEvery is the interval of checks of the target, its settings and its end, also while nothing is copied.
const checkEvery = 5 * time.Second

// copy reads the position, and copies the messages after it until an error occurs.
func (s *Stage) copy(ctx context.Context) error {
	if sleep(ctx, time.Duration(s.doubts.n)*s.cfg.Settle); ctx.Err() != nil {
		return ctx.Err()
	}
	at, err := s.locate(ctx)
	if err == nil && s.cfg.DeadLetters != nil {
		err = s.cfg.DeadLetters.Check(ctx)
	}
	if err := s.doubts.sure(err); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	reader, err := s.origin.Open(ctx, at.from.Seq) //mutant:open
	if err != nil {
		end(nil)
		return err
	}
	defer reader.Close()
	if _, err := s.origin.at(ctx, at.from); err != nil {
		end(nil)
		return err
	}
	s.cfg.Log.Info("this stage begins to copy", "position", at.from.Seq, "behind", at.behind())
	s.note(func(p *Progress) {
		p.Role, p.Position, p.Behind = Copying, at.from.Seq, at.behind()
	})
	batches := make(chan *batch)
	var gathering sync.WaitGroup
	gathering.Go(func() { end(s.gather(ctx, reader, at, batches)) })
	defer gathering.Wait()
	defer end(nil)
	hints := s.newHinter(ctx)
	defer hints.close()
	hints.set(Hint{Last: at.last, Created: s.created, Position: at.from}) // an earlier write may have been lost
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		if s.cfg.Once && at.from.Seq >= at.end {
			rest := at.from
			if _, err := s.origin.look(ctx, &rest); err == nil {
				// At the next run the messages that are passed (not copied) here may have expired.
				hints.set(Hint{Last: at.last, Created: s.created, Position: rest})
			}
			return errDone
		}
		select {
		case b := <-batches:
			at.removed = at.removed && len(b.msgs) == 0
			if err := s.write(ctx, b, &at.last); err != nil {
				return err
			}
			at.from = b.to
			hints.set(Hint{Last: at.last, Created: s.created, Position: at.from})
		case <-check.C:
			t, err := s.target(ctx)
			if err != nil {
				return doubted(err)
			}
			if t.Last > at.last || t.Removed && !at.removed {
				return ErrFenced
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// doubts counts how often in a row JetStream gave answers by which the stage must stop.
type doubts struct {
	settle time.Duration // [Config].Settle
	n      int
}

// sure returns err. But the first two times in a row that err is a [Stop], sure returns an error to retry, as a
// deposed leader may have answered. If settle is 0, it returns the first Stop.
func (d *doubts) sure(err error) error {
	_, stopped := errors.AsType[*Stop](err)
	switch {
	case !stopped:
		d.n = 0
	case d.settle > 0 && d.n < 2:
		d.n++
		return doubted(err)
	}
	return err
}

// doubted returns err as an error that is not a [Stop]: copy asks again whether the stage must stop.
func doubted(err error) error { return fmt.Errorf("JetStream is asked again: %v", err) }

// write writes a batch to the target after the sequence to which last points, and advances that. A batch whose messages
// are all passed (not copied) writes nothing. write awaits the outcome even if ctx ends, so that the last hint matches
// the last write.
func (s *Stage) write(ctx context.Context, b *batch, last *uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersWithin)
	defer cancel()
	if len(b.msgs) > 0 {
		//mutant:write
		if err := s.cfg.Target.Write(ctx, b.msgs, *last); err != nil {
			if errors.Is(err, ErrFenced) {
				s.note(func(p *Progress) { p.Fenced++ })
			}
			return err
		}
		s.note(func(p *Progress) { p.Batches++ })
	}
	*last += uint64(len(b.msgs))
	s.note(func(p *Progress) {
		p.Position, p.Behind, p.Why = b.to.Seq, b.pending, ""
		p.Copied += uint64(len(b.msgs))
	})
	return nil
}

// Times of a stage that stands by. It takes over when the position has not moved for quietFor though the source holds
// more: within 5 s of the death of the other stage.
const (
	lookEvery = 500 * time.Millisecond
	quietFor  = 2500 * time.Millisecond
)

// standBy returns when no other stage copies, when copy may find that the stage must stop, or when ctx ends.
func (s *Stage) standBy(ctx context.Context) {
	var was place
	since := time.Now()
	for ctx.Err() == nil && time.Since(since) < quietFor {
		sleep(ctx, lookEvery)
		at, err := s.locate(ctx)
		if _, stopped := errors.AsType[*Stop](err); stopped {
			return
		}
		if err != nil {
			continue // a JetStream that is slow to answer must not delay a takeover
		}
		if at.last != was.last || at.from.Seq != was.from.Seq || at.from.Seq >= at.end {
			was, since = at, time.Now()
		}
		s.note(func(p *Progress) { p.Position, p.Behind = at.from.Seq, at.behind() })
		if s.cfg.Once && at.from.Seq >= at.end {
			return // copy finds that all is done
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
