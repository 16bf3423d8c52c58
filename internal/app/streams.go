package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// A streamWatch searches for JetStream streams on the subjects of requests. Such a stream acknowledges each request,
// and the caller takes the acknowledgement for the answer.
type streamWatch struct {
	cfg   *Config
	raise func(kind subjects.Alarm, about, message string)

	troubles atomic.Pointer[map[worker.Mode]error] // nil for none
	known    map[string]string                     // the last report about each stream, by name
}

// trouble returns why callers of the mode get no answer from a worker, or nil. It is safe for concurrent use.
func (w *streamWatch) trouble(mode worker.Mode) error {
	if troubles := w.troubles.Load(); troubles != nil {
		return (*troubles)[mode]
	}
	return nil
}

// run searches about once per poll until ctx ends. If JetStream does not answer, or this user may not list streams,
// the pauses grow.
func (w *streamWatch) run(ctx context.Context, js jetstream.JetStream) error {
	failures := jitter.NewBackoff(w.cfg.TagPoll, 10*w.cfg.TagPoll)
	for {
		pause := jitter.Around(w.cfg.TagPoll)
		found, err := w.find(ctx, js)
		if err == nil {
			failures.Reset()
			w.report(found)
		} else {
			pause = failures.NextBackOff()
		}
		if jitter.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// A taker is a stream on subjects of requests.
type taker struct {
	subjects []string
	silent   bool // it does not acknowledge
}

// find returns the streams on subjects of requests, by name. If there are none, as nearly always, it costs one
// request.
func (w *streamWatch) find(ctx context.Context, js jetstream.JetStream) (map[string]*taker, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	found := make(map[string]*taker)
	near, err := streamsOn(ctx, js, string(w.cfg.Namespace)+".>")
	if err != nil || len(near) == 0 {
		return found, err
	}
	for _, subject := range w.cfg.Namespace.Requests() {
		names, err := streamsOn(ctx, js, subject)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if found[name] == nil {
				found[name] = new(taker)
			}
			found[name].subjects = append(found[name].subjects, subject)
		}
	}
	for name, t := range found {
		// If this user may not read the stream, the stream counts as one that acknowledges.
		if s, err := js.Stream(ctx, name); err == nil {
			t.silent = s.CachedInfo().Config.NoAck
		}
	}
	return found, nil
}

func streamsOn(ctx context.Context, js jetstream.JetStream, subject string) (names []string, err error) {
	list := js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for name := range list.Name() {
		names = append(names, name)
	}
	return names, list.Err()
}

// report raises an alarm for each stream that is new or has other subjects, and sets the result of trouble.
func (w *streamWatch) report(found map[string]*taker) {
	known, troubles, ns := make(map[string]string), make(map[worker.Mode]error), w.cfg.Namespace
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t := found[name]
		known[name] = t.effect(name)
		if w.known[name] != known[name] {
			w.raise(subjects.AlarmStreamOverlap, name, known[name])
		}
		for mode, on := range map[worker.Mode][]string{
			worker.Segment: {ns.Segments()}, worker.Snowflake: {ns.Snowflake(), ns.Snowflakes()},
		} {
			if !t.silent && slices.ContainsFunc(on, t.takes) {
				troubles[mode] = errors.New(known[name])
			}
		}
	}
	for name := range w.known {
		if known[name] == "" {
			w.cfg.Log.Info("a stream takes no requests any more", "stream", name)
		}
	}
	w.known = known
	w.troubles.Store(&troubles)
}

func (t *taker) takes(subject string) bool { return slices.Contains(t.subjects, subject) }

// effect describes the effect of the stream on callers.
func (t *taker) effect(name string) string {
	on := strings.Join(t.subjects, ", ")
	if t.silent {
		return fmt.Sprintf("stream %s stores requests on %s: with no worker left, callers wait for an answer "+
			"in vain instead of learning at once that there is none", name, on)
	}
	return fmt.Sprintf("stream %s acknowledges requests on %s: callers may get the acknowledgement instead "+
		"of an answer", name, on)
}
