package wire

import (
	"bytes"
	"time"

	"github.com/natsid/natsid/subjects"
)

// Tag returns the tag in a subject that matches [Segments].
func Tag(n subjects.Namespace, subject string) string { return subject[len(n)+len(".segment."):] }

// Business returns the business in a subject that matches [Snowflakes]; "" for [subjects.Namespace.Snowflake].
func Business(n subjects.Namespace, subject string) string {
	if bare := len(n) + len(".snowflake"); len(subject) > bare {
		return subject[bare+1:]
	}
	return ""
}

// ParseCount reads from the body of a request how many IDs it asks for. An empty body asks for one ID. Any other body
// is a decimal 1..limit without sign, leading zero or space; one newline at the end is ignored, for `echo 5 | nats
// request …`. The error is an [*subjects.Error] of code [subjects.BadRequest]; if the count is above the limit, its
// MaxBatch is the limit.
func ParseCount(body []byte, limit int) (int, error) {
	if len(body) == 0 {
		return 1, nil
	}
	digits := bytes.TrimSuffix(body, []byte("\n"))
	n, ok := parseDecimal(digits, int64(limit))
	if ok && n > 0 {
		return int(n), nil
	}
	if isCount(digits) {
		e := bad("the count is %+.24q, and one request may ask for %d at most", body, limit)
		e.MaxBatch = limit
		return 0, e
	}
	return 0, bad("the count is %+.24q, want empty for one ID or a decimal 1..%d without leading zero", body, limit)
}

// isCount reports whether digits are a decimal of at least 1 without leading zero, however large.
func isCount(digits []byte) bool {
	other := func(r rune) bool { return r < '0' || r > '9' }
	return len(digits) > 0 && digits[0] != '0' && !bytes.ContainsFunc(digits, other)
}

// BatchThatFits returns how many IDs always fit in a reply of size bytes, whatever runs the IDs form.
func BatchThatFits(size int) int {
	const most = len("\n9223372036854775807") // bytes for one ID; a run of two or more takes at most twice as many
	return size / most
}

// ParseBusiness reads the business from a snowflake subject: a decimal 0..limit without sign or leading zero. The error
// is an [*subjects.Error] of code [subjects.BadRequest].
func ParseBusiness(text string, limit int64) (int64, error) {
	b, ok := parseDecimal([]byte(text), limit)
	switch {
	case !ok && limit == 0:
		return 0, bad("the business is %+.24q, for which the layout has no bits: request snowflakes without one", text)
	case !ok:
		return 0, bad("the business is %+.24q, want a decimal 0..%d, the most that the layout holds", text, limit)
	}
	return b, nil
}

// parseDecimal reads a decimal 0..limit without sign or leading zero, and reports whether digits are one.
func parseDecimal(digits []byte, limit int64) (int64, bool) {
	n, err := subjects.ParseID(string(digits))
	return int64(n), err == nil && int64(n) <= limit
}

// CheckPrefetch checks a value of [subjects.HeaderPrefetch]: a duration above 0, at most [subjects.MaxPrefetchAge]. The
// error is an [*subjects.Error] of code [subjects.BadRequest].
func CheckPrefetch(value string) error {
	age, err := time.ParseDuration(value)
	if err != nil || age <= 0 || age > subjects.MaxPrefetchAge {
		return bad("the header %s is %+.24q, want a duration above 0s and at most %v, such as 2s",
			subjects.HeaderPrefetch, value, subjects.MaxPrefetchAge)
	}
	return nil
}

func bad(format string, args ...any) *subjects.Error {
	return subjects.Errorf(subjects.BadRequest, format, args...)
}
