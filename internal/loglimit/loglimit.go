// Package loglimit writes each kind of log line once a minute at most, so that an
// outage costs a few lines, however many loads and requests fail in it.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Every is the least time between two lines of one kind.
const Every = time.Minute

// HeldBack is the key of how many lines of the kind were left out before a line.
const HeldBack = "held_back"

// most bounds the kinds that are told apart. Messages are constants, but for those
// of libraries.
const most = 1000

// New returns a handler that passes the first record of a kind to next at once. Of
// those that follow within a minute it passes the last one, with its own time, when
// the minute is over: so what the log said last is true a minute later. Records of
// one level and message are of one kind. Debug records all pass, and so do those with
// the message "alarm", which are limited where they are raised.
func New(next slog.Handler) slog.Handler {
	return &handler{Handler: next, lines: &lines{open: make(map[kind]*line)}}
}

// A handler is the handler of one logger. All that derive from one share its lines.
type handler struct {
	slog.Handler
	lines *lines
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && r.Message != "alarm" && h.lines.hold(h.Handler, r) {
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

// A kind is what lines have in common of which one is written.
type kind struct {
	level   slog.Level
	message string
}

// lines are the kinds of which a line was written in the last minute.
type lines struct {
	mu   sync.Mutex
	open map[kind]*line
}

// A line is what was held back of one kind.
type line struct {
	count int
	last  slog.Record  // valid if count > 0
	to    slog.Handler // the handler of last
}

// hold reports whether the record is held back.
func (ls *lines) hold(to slog.Handler, r slog.Record) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	k := kind{r.Level, r.Message}
	l := ls.open[k]
	if l == nil && len(ls.open) >= most {
		k = kind{}
		l = ls.open[k]
	}
	if l == nil {
		ls.open[k] = &line{}
		ls.wake(k)
		return false
	}
	l.count, l.last, l.to = l.count+1, r.Clone(), to
	return true
}

func (ls *lines) wake(k kind) { time.AfterFunc(Every, func() { ls.release(k) }) }

// release writes the last line that was held back, if one was, and forgets the kind
// otherwise.
func (ls *lines) release(k kind) {
	ls.mu.Lock()
	held := *ls.open[k]
	if held.count == 0 {
		delete(ls.open, k)
	} else {
		*ls.open[k] = line{}
		ls.wake(k)
	}
	ls.mu.Unlock()
	if held.count == 0 {
		return
	}
	if held.count > 1 {
		held.last.AddAttrs(slog.Int(HeldBack, held.count-1))
	}
	_ = held.to.Handle(context.Background(), held.last) // as slog, which drops it too
}
