// Package loglimit writes each kind of log line once a minute at most, so that an
// outage costs a few lines, however many loads and requests fail in it.
package loglimit

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Every is the least time between two lines of one kind.
const Every = time.Minute

// HeldBack is the key of the number of lines of the kind that were left out before a line.
const HeldBack = "held_back"

// most bounds the kinds that are distinguished. Messages are constants, except those of libraries.
const most = 1000

// whole are the messages whose lines are never held back: alarms and traces, which are limited where they are raised,
// and changes that operators made.
var whole = map[string]bool{
	"alarm": true, "tags changed": true, "tags may have changed": true,
	"a traced request was slow": true, "a traced request was refused": true,
}

// New returns a handler that passes the first record of a kind to next at once. Of the records that follow within a
// minute it passes only the last, with its own time, when the minute is over: so the last line of a kind is out of
// date by a minute at most. Records of one level and message are of one kind, if they also have the same attribute
// "mode" or both have none. All debug records pass, and so do those in whole.
func New(next slog.Handler) slog.Handler {
	return &handler{Handler: next, lines: &lines{open: make(map[kind]*line)}}
}

// A handler is the handler of one logger. All handlers derived from one share its lines.
type handler struct {
	slog.Handler
	lines *lines
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !whole[r.Message] && h.lines.hold(h.Handler, r) {
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

// A kind is the common part of lines of which one is written.
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

// lines are the kinds of which a line was written in the last minute.
type lines struct {
	mu   sync.Mutex
	open map[kind]*line
}

// A line is the held-back records of one kind.
type line struct {
	count int
	last  slog.Record  // valid if count > 0
	to    slog.Handler // the handler of last
}

// hold reports whether the record is held back.
func (ls *lines) hold(to slog.Handler, r slog.Record) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	k := kindOf(r)
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

// release writes the last held-back record of a kind, and drops the kind if there is none.
func (ls *lines) release(k kind) {
	ls.mu.Lock()
	l := ls.open[k]
	switch {
	case l == nil: // flushed
	case l.count == 0:
		delete(ls.open, k)
	default:
		ls.open[k] = &line{}
		ls.wake(k)
	}
	ls.mu.Unlock()
	if l != nil {
		l.write()
	}
}

func (l *line) write() {
	if l.count == 0 {
		return
	}
	if l.count > 1 {
		l.last.AddAttrs(slog.Int(HeldBack, l.count-1))
	}
	_ = l.to.Handle(context.Background(), l.last) // an error is dropped, as in slog
}

// Flush writes the records that the handler of a log holds back, if it is one of New: call it before the process
// ends.
func Flush(log *slog.Logger) {
	h, ok := log.Handler().(*handler)
	if !ok {
		return
	}
	h.lines.mu.Lock()
	open := h.lines.open
	h.lines.open = make(map[kind]*line)
	h.lines.mu.Unlock()
	byTime := func(a, b *line) int { return a.last.Time.Compare(b.last.Time) }
	for _, l := range slices.SortedFunc(maps.Values(open), byTime) {
		l.write()
	}
}
