package subjects

import (
	"fmt"
	"strconv"
)

// Headers of an error reply: those of the NATS services protocol. A reply
// that has them has an empty body and holds no ID.
const (
	HeaderError     = "Nats-Service-Error"
	HeaderErrorCode = "Nats-Service-Error-Code"
)

// A Code says why a request got no ID. Codes are part of the wire contract.
type Code int

// The codes, and what a caller does about each.
const (
	BadRequest  Code = 400 // malformed: mend the request, a retry cannot help
	NotFound    Code = 404 // no such tag: create it
	TooMany     Code = 429 // too many requests wait for this tag: back off
	Internal    Code = 500 // a bug in natsid: report it
	Unavailable Code = 503 // this worker cannot issue now: retry once at once, then back off
)

// OK is what a request that got its IDs counts as. It is never sent.
const OK Code = 200

// String returns the code's decimal digits, as they stand in the header.
func (c Code) String() string { return strconv.Itoa(int(c)) }

// Retry reports whether the same request may succeed if sent again.
func (c Code) Retry() bool { return c == TooMany || c == Unavailable }

// An Error is an error as it crosses the wire. Its text names no internals.
type Error struct {
	Code Code
	Text string
}

// Errorf returns an [*Error] with a formatted text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Text }

// ParseError returns the error that a reply's two headers state, or nil if
// the code is empty: then the reply is no error. A code that is not a number
// is given as 500.
func ParseError(code, text string) *Error {
	if code == "" {
		return nil
	}
	c, err := strconv.Atoi(code)
	if err != nil {
		return Errorf(Internal, "code %q: %s", code, text)
	}
	return &Error{Code: Code(c), Text: text}
}
