// Package loglimit writes each kind of log line once a minute at most, so that an
// outage costs a few lines, however many loads and requests fail in it.
package loglimit

import (
	"context"
	"log/slog"
	"time"
)

// Every is the least time between two lines of one kind.
const Every = time.Minute

// HeldBack is the key of the attribute with how many lines of the kind were dropped before this one.
const HeldBack = "held_back"

// most bounds the kinds that are distinguished. Messages are constants, except those of libraries.
const most = 1000

// whole are the messages whose lines are never held back: alarms, which are limited where they are raised, and
// changes that operators made.
var whole = map[string]bool{"alarm": true, "tags changed": true, "tags may have changed": true}

// New returns a handler that passes the first record of a kind to next at once. Of the records that follow within a
// minute it passes only the last, with its own time, when the minute is over: so the last line of a kind is out of date
// by a minute at most. Records of one level and message are of one kind, if they also have the same attribute "mode" or
// both have none. All debug records pass, and so do those whose message is in whole.
func New(next slog.Handler) slog.Handler {
	return &handler{next, NewLimiter[kind](most, write)}
}

// A handler is the handler of one logger. All handlers derived from one share its lines.
type handler struct {
	slog.Handler
	lines *Limiter[kind, record]
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !whole[r.Message] && h.lines.Hold(kindOf(r), record{r.Clone(), h.Handler}) {
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

// A kind is what lines have in common of which one a minute is written.
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

// A record is a held-back record, and the handler that writes it.
type record struct {
	slog.Record
	to slog.Handler
}

// write writes the last of the records of a kind that were held back.
func write(r record, left int) {
	if left > 0 {
		r.AddAttrs(slog.Int(HeldBack, left))
	}
	_ = r.to.Handle(context.Background(), r.Record) // an error is dropped, as in slog
}

// Flush writes the records that the log's handler holds back, if New made that handler. Call Flush before the process
// ends.
func Flush(log *slog.Logger) {
	if h, ok := log.Handler().(*handler); ok {
		h.lines.Flush(func(a, b record) int { return a.Time.Compare(b.Time) })
	}
}
