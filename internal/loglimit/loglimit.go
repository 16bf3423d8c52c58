// Package loglimit writes each kind of log line at most once a minute, so that an outage costs a few lines, however
// many loads and requests fail.
package loglimit

import (
	"context"
	"log/slog"
	"time"
)

// Every is the shortest time between two lines of one kind.
const Every = time.Minute

// HeldBack is the key of an attribute: how many lines of the kind were dropped before this line.
const HeldBack = "held_back"

// most is how many kinds are distinguished at once. It bounds memory, since libraries make any number of messages.
const most = 1000

// unlimited has the messages of lines that are never held back: those of alarms, which are limited where they are
// raised, and of changes by operators.
var unlimited = map[string]bool{"alarm": true, "tags changed": true, "tags may have changed": true}

// New returns a handler that passes the first record of a kind to next at once. Of the records that follow within a
// minute it passes the last alone, with that record's time, when the minute ends: so the last line of a kind is out of
// date by a minute at most. Records are of one kind if their level, message and attribute "mode" are equal. All debug
// records pass at once, and all records with an unlimited message.
func New(next slog.Handler) slog.Handler {
	return &handler{next, NewLimiter[kind](most, write)}
}

// A handler is the handler of [New]. Handlers derived from it, by WithAttrs or WithGroup, share its limiter.
type handler struct {
	slog.Handler
	lines *Limiter[kind, record]
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !unlimited[r.Message] && h.lines.Hold(kindOf(r), record{r.Clone(), h.Handler}) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.lines}
}

// A kind has what the lines of one kind have in common.
type kind struct {
	level   slog.Level
	message string
	mode    string
}

func kindOf(r slog.Record) kind {
	k := kind{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "mode" {
			k.mode = a.Value.String()
		}
		return k.mode == ""
	})
	return k
}

// A record is a log record with the handler that writes it.
type record struct {
	slog.Record
	to slog.Handler
}

// write writes a record that was held back; left is how many before it were dropped.
func write(r record, left int) {
	if left > 0 {
		r.AddAttrs(slog.Int(HeldBack, left))
	}
	_ = r.to.Handle(context.Background(), r.Record) // an error is dropped, as in slog
}

// Flush writes the records that a log holds back, if [New] made its handler. Call it before the process ends.
func Flush(log *slog.Logger) {
	if h, ok := log.Handler().(*handler); ok {
		h.lines.Flush(func(a, b record) int { return a.Time.Compare(b.Time) })
	}
}
