package worker

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/ratelimit"
	"github.com/natsid/natsid/subjects"
)

// slow is how long a request takes at least that is logged as slow, if it has a trace.
const slow = 100 * time.Millisecond

// A trace log writes which requests were slow or refused, if their callers trace them: by
// the header traceparent of W3C's Trace Context. It writes tracesPerSecond at most, since
// anybody may send the header. A request without headers costs it nothing.
type traceLog struct{ ration *ratelimit.Bucket }

const tracesPerSecond = 20

func newTraceLog() traceLog { return traceLog{ratelimit.New(time.Second)} }

// traced returns the message of a request that may be traced.
func traced(m *nats.Msg) *nats.Msg {
	if m.Header == nil {
		return nil
	}
	return m
}

// trace logs a request that was answered, if it has a trace and is worth a line. e is why
// it was refused, nil if it was not.
func (r *request) trace(e *subjects.Error) {
	if r.traced == nil {
		return
	}
	for _, name := range []string{"traceparent", "Traceparent"} { // as callers write it
		if parent := r.traced.Header[name]; parent != nil {
			r.at.link.traces.answered(r.at.link.Log, parent, "subject", r.traced.Subject, clock()-r.came, e)
			return
		}
	}
}

// answered logs a request with a header traceparent, if it is worth a line: what kind of
// address it came to and which one, and how long it took.
func (t traceLog) answered(
	log *slog.Logger, parent []string, kind, address string, took time.Duration, e *subjects.Error,
) {
	if e == nil && took < slow || len(parent) != 1 || !isTraceParent(parent[0]) ||
		t.ration.Take(clock(), 1, tracesPerSecond) > 0 {
		return
	}
	attrs := []any{"traceparent", parent[0], kind, address, "took", took.Round(time.Microsecond)}
	if e == nil {
		log.Info("a traced request was slow", attrs...)
		return
	}
	log.Info("a traced request was refused", append(attrs, "code", e.Code.String(), "error", e.Text)...)
}

// isTraceParent reports whether text is version, trace, parent and flags, in lower hexadecimal digits.
func isTraceParent(text string) bool {
	const form = "00-00000000000000000000000000000000-0000000000000000-00"
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		c := text[i]
		if hex := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'; form[i] == '-' && c != '-' || form[i] == '0' && !hex {
			return false
		}
	}
	return true
}
