package kvstore

import (
	"crypto/rand"
	"encoding/base64"
)

// newToken returns 66 random bits from the kernel: two clones of one machine must not draw the same.
func newToken() string {
	b := make([]byte, 9)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:11]
}

// A cas is one compare-and-set of an entry, from a revision that was read just before. Its random token in the entry
// shows a later read that it has landed. Equal contents would prove nothing: another worker that starts from the same
// revision with the same step writes the same mark. The zero value stands for none.
type cas struct {
	token  string
	base   uint64 // the revision that it replaces
	before string // the token of the entry at base
}

func newCAS(base uint64, before string) cas { return cas{newToken(), base, before} }

// An outcome is what became of a compare-and-set, as a later read of the entry shows it.
type outcome int

const (
	none    outcome = iota // the cas is zero: nothing was sent
	landed                 // it wrote the entry that was read
	open                   // the entry is still the one that it replaces: it may land later, or never
	unknown                // another write has replaced the entry since
)

// outcome returns the outcome of the compare-and-set, given a later read of the entry.
//
// Law: landed means that the compare-and-set from base was this one, and no other. So the range that it reserved is
// this process's alone, as after an acknowledgement.
func (c cas) outcome(revision uint64, now string) outcome {
	switch {
	case c.token == "":
		return none
	case now == c.token:
		return landed
	case revision == c.base && now == c.before: // one write from base can land: it may be sent again
		return open
	}
	return unknown
}
