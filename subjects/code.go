package subjects

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Headers of an error reply: two as in the NATS services protocol, and two for the optional fields of an [Error]. A
// reply that has them has an empty body and holds no ID.
const (
	HeaderError      = "Nats-Service-Error"
	HeaderErrorCode  = "Nats-Service-Error-Code"
	HeaderMaxBatch   = "Natsid-Max-Batch"
	HeaderRetryAfter = "Natsid-Retry-After-Ms"
)

// HeaderPrefetch marks a request whose IDs are held for later use. Its value is the longest time that they are held,
// counted from before the request was sent, as a Go duration: "2s".
const HeaderPrefetch = "Natsid-Prefetch"

// MaxPrefetchAge is the longest time for which a caller may hold IDs: each ID is used within that time after a worker
// issued it. Whoever raises a tag, or reads the time in a snowflake, may rely on that. Uniqueness does not depend on
// it: a worker issues no ID twice, however long a caller holds it.
const MaxPrefetchAge = time.Hour

// A Code is the reason why a request got no ID. [Codes] explains each. Codes are part of the wire contract.
type Code int

// The codes of error replies.
const (
	BadRequest  Code = 400
	NotFound    Code = 404
	Conflict    Code = 409
	UsedUp      Code = 410
	TooMany     Code = 429
	Internal    Code = 500
	Unavailable Code = 503
)

// A CodeInfo explains one code to a caller. Meaning and Do are clauses without a capital at the start or a period at
// the end.
type CodeInfo struct {
	Code    Code
	Meaning string
	Do      string
}

// Codes returns every code that an error reply can have, in ascending order, with a caller's remedy. The slice is the
// caller's.
func Codes() []CodeInfo { return slices.Clone(codes) }

var codes = []CodeInfo{
	{BadRequest, "the request is malformed; the text says how", "fix the request; a retry cannot help"},
	{NotFound, "there is no such tag, or it was deleted",
		"check its name; create it, as with `natsid tag create order`"},
	{Conflict, "the tag to be created exists", "use it, or change it, as with `natsid tag update order`"},
	{UsedUp, "fewer numbers than requested are left of the tag, or of its day, month or year",
		"ask for at most Natsid-Max-Batch; without that, raise the tag's maximum, or wait for the next period"},
	{TooMany, "too many requests wait already, or more is asked for than a limit allows",
		"retry after the time in Natsid-Retry-After-Ms"},
	{Internal, "a bug in natsid", "report it, with the log of the worker"},
	{Unavailable, "this worker cannot issue now; with Natsid-Retry-After-Ms none does before an operator acts",
		"retry once at once, since another worker may; then back off"},
}

// String returns the code's decimal digits, as in the header.
func (c Code) String() string { return strconv.Itoa(int(c)) }

// Retry reports whether the same request may succeed if it is sent again.
func (c Code) Retry() bool { return c == TooMany || c == Unavailable }

// An Error is an error as it crosses the wire. Text is printable ASCII and names no internals.
type Error struct {
	Code Code
	Text string
	// MaxBatch is the largest count that would not have been refused; 0 if no smaller count helps. It comes with
	// [BadRequest], and with [UsedUp], where it falls with each ID that is issued.
	MaxBatch int
	// RetryAfter is 0, or how long to wait before the request is repeated, in whole ms. It comes with [TooMany], and
	// with [Unavailable] if no worker can serve until an operator has acted.
	RetryAfter time.Duration
}

// Errorf returns an [*Error] with a formatted text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the code and the text: "404: no such tag".
func (e *Error) Error() string { return e.Code.String() + ": " + e.Text }

// Headers returns the headers of the reply.
func (e *Error) Headers() map[string][]string {
	headers := map[string][]string{HeaderErrorCode: {e.Code.String()}, HeaderError: {e.Text}}
	if e.MaxBatch > 0 {
		headers[HeaderMaxBatch] = []string{strconv.Itoa(e.MaxBatch)}
	}
	if ms := e.RetryAfter.Milliseconds(); ms > 0 {
		headers[HeaderRetryAfter] = []string{strconv.FormatInt(ms, 10)}
	}
	return headers
}

// ParseError returns the error in the headers of a reply, or nil if they have no code: then the reply is not an
// error. A code that is not a number becomes [Internal]; a MaxBatch or RetryAfter that is not a decimal counts as
// absent.
func ParseError(headers map[string][]string) *Error {
	code, text := first(headers[HeaderErrorCode]), first(headers[HeaderError])
	if code == "" {
		return nil
	}
	c, err := strconv.Atoi(code)
	if err != nil {
		return Errorf(Internal, "code %q: %s", code, text)
	}
	batch, _ := parseDecimal([]byte(first(headers[HeaderMaxBatch])), math.MaxInt32)
	ms, _ := parseDecimal([]byte(first(headers[HeaderRetryAfter])), math.MaxInt32)
	return &Error{Code: Code(c), Text: text, MaxBatch: int(batch), RetryAfter: time.Duration(ms) * time.Millisecond}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
