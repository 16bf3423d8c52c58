package worker

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/ration"
	"github.com/natsid/natsid/subjects"
)

// slow is how long a request takes at least that is logged as slow, if it has a trace.
const slow = 100 * time.Millisecond

// A trace log writes which requests were slow or refused, if their callers trace them: by
// the header traceparent of W3C's Trace Context. It writes tracesPerSecond at most, since
// anybody may send the header. A request without headers costs it nothing.
type traceLog struct{ ration *ration.Bucket }

const tracesPerSecond = 20

func newTraceLog() traceLog { return traceLog{ration.New(time.Second)} }

// traced returns the message of a request that may be traced.
func traced(m *nats.Msg) *nats.Msg {
	if m.Header == nil {
		return nil
	}
	return m
}

// trace logs a request that was answered, if it has a trace and is worth a line. e is why
// it was refused, nil if it was not.
func (r request) trace(e *subjects.Error) {
	if r.traced == nil {
		return
	}
	took, parent := clock()-r.came, traceParent(r.traced.Header)
	if parent == "" || e == nil && took < slow || r.at.out.traces.ration.Take(clock(), 1, tracesPerSecond) > 0 {
		return
	}
	attrs := []any{"traceparent", parent, "subject", r.traced.Subject, "took", took.Round(time.Microsecond)}
	if e == nil {
		r.at.out.log.Info("a traced request was slow", attrs...)
		return
	}
	r.at.out.log.Info("a traced request was refused", append(attrs, "code", e.Code.String(), "error", e.Text)...)
}

// traceParent returns the header traceparent, as its callers write it; "" if it is none.
func traceParent(h nats.Header) string {
	for _, name := range []string{"traceparent", "Traceparent"} {
		if v := h[name]; len(v) == 1 && isTraceParent(v[0]) {
			return v[0]
		}
	}
	return ""
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
