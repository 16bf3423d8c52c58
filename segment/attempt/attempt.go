// Package attempt finds out what became of writes of a tag's entry whose acknowledgement was lost, and keeps the ranges
// that they reserved; it is internal to natsid and may change.
//
// Every write is a compare-and-set and carries a fresh random token. The entry bears the tokens of its latest writes,
// so a later read shows whether the write has landed. Equal contents prove nothing: another worker that starts from the
// same revision with the same step writes the same mark.
package attempt

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

// borne is how many tokens an entry bears: of so many workers that write one tag at once, each learns what became of
// its own write.
const borne = 8

// Tokens are those of the latest writes of an entry, newest first, separated by commas; "" if it has none, as an entry
// that an operator put.
type Tokens string

// Bear reports whether a token is among them; "" never is.
func (t Tokens) Bear(token string) bool { return token != "" && strings.Contains(string(t), token) }

// newest returns the token of the last write, or "".
func (t Tokens) newest() string {
	token, _, _ := strings.Cut(string(t), ",")
	return token
}

// add returns the tokens of an entry after a write with that token.
func (t Tokens) add(token string) Tokens {
	all := append([]string{token}, strings.Split(string(t), ",")...)
	return Tokens(strings.TrimSuffix(strings.Join(all[:min(borne, len(all))], ","), ","))
}

// newToken returns 66 random bits from the kernel: two clones of one machine must not draw the same.
func newToken() string {
	b := make([]byte, 9)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:11]
}

// An Attempt is one compare-and-set of an entry, from a revision that was read just before. The zero Attempt is none.
type Attempt struct {
	token  string
	base   uint64 // the revision that it replaces
	before Tokens // of the entry at base
}

// New returns an attempt to replace an entry that was read at revision base and bears the tokens before.
func New(base uint64, before Tokens) Attempt {
	return Attempt{token: newToken(), base: base, before: before}
}

// Tokens returns what the entry bears if the attempt lands.
func (a Attempt) Tokens() Tokens { return a.before.add(a.token) }

// An Outcome is what a read of the entry says about an attempt.
type Outcome int

// The outcomes of an attempt.
const (
	// None is the outcome of the zero Attempt.
	None Outcome = iota
	// Landed: the entry, or one that it replaced, is the attempt's.
	Landed
	// Open: the entry is still the one that the attempt replaces. The write may land later, or never. Of several
	// writes from that entry one can land; the same write may be sent once more.
	Open
	// Refused: the attempt has not landed and never will. The entry bears the token of the one at base, and with it
	// those of all writes since.
	Refused
	// Unknown: the entry was replaced meanwhile, by too many writes to say by which.
	Unknown
)

// Outcome returns what became of the attempt, given a later read of the entry.
//
// Law: Landed means that the compare-and-set from base was this attempt's, and no other's. So what was reserved by it
// is this process's alone, as after an acknowledgement, however often the entry was replaced since.
func (a Attempt) Outcome(revision uint64, now Tokens) Outcome {
	switch {
	case a.token == "":
		return None
	case now.Bear(a.token):
		return Landed
	case revision == a.base && now == a.before:
		return Open
	case now.Bear(a.before.newest()):
		return Refused
	}
	return Unknown
}
