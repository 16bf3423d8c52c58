// Package attempt determines whether writes of a tag's entry landed when their acknowledgement was lost, and keeps
// the ranges that they reserved; it is internal to natsid and may change.
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

// borne is how many tokens an entry bears: if up to that many workers write one tag at once, each can still determine
// whether its own write landed.
const borne = 8

// Tokens are those of the latest writes of an entry, newest first, separated by commas; "" if it has none, such as an
// entry that an operator put.
type Tokens string

// Bear reports whether the tokens include token; they never include "".
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

// An Attempt is one compare-and-set of an entry, from a revision that was read just before. The zero Attempt means
// that there was none.
type Attempt struct {
	token  string
	base   uint64 // the revision that the attempt replaces
	before Tokens // of the entry at base
}

// New returns an attempt to replace an entry that was read at revision base and bears the tokens before.
func New(base uint64, before Tokens) Attempt {
	return Attempt{token: newToken(), base: base, before: before}
}

// Tokens returns the tokens that the entry bears if the attempt lands.
func (a Attempt) Tokens() Tokens { return a.before.add(a.token) }

// An Outcome is the state of an attempt, as a later read of the entry shows it.
type Outcome int

// The outcomes of an attempt.
const (
	// None is the outcome of the zero Attempt.
	None Outcome = iota
	// Landed: the attempt wrote the entry that was read, or one that this entry has replaced.
	Landed
	// Open: the entry is still the one that the attempt replaces. The write may land later, or never. At most one of
	// several writes from that entry can land; the same write may be sent once more.
	Open
	// Refused: the attempt has not landed and never will. The entry bears the token that was the newest at base, and
	// with it the tokens of all writes since.
	Refused
	// Unknown: too many other writes have replaced the entry to decide whether the attempt landed.
	Unknown
)

// Outcome returns the outcome of the attempt, given a later read of the entry.
//
// Law: Landed means that the compare-and-set from base was this attempt's, and no other's. So the range that it
// reserved is this process's alone, as after an acknowledgement, however often the entry was replaced since.
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
