package kvstore

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

// borne is how many tokens an entry has: if up to that many workers write one tag at once, each can still determine
// whether its own write landed.
const borne = 8

// tokens has the random tokens of the latest writes of an entry, newest first, separated by commas; "" for an entry
// that an operator wrote. By its token a later read shows whether a write has landed. Equal contents would prove
// nothing: another worker that starts from the same revision with the same step writes the same mark.
type tokens string

// bear reports whether the tokens include token; they never include "".
func (t tokens) bear(token string) bool { return token != "" && strings.Contains(string(t), token) }

// newest returns the token of the last write, or "".
func (t tokens) newest() string {
	token, _, _ := strings.Cut(string(t), ",")
	return token
}

// add returns the tokens of an entry after a write with that token.
func (t tokens) add(token string) tokens {
	all := append([]string{token}, strings.Split(string(t), ",")...)
	return tokens(strings.TrimSuffix(strings.Join(all[:min(borne, len(all))], ","), ","))
}

// newToken returns 66 random bits from the kernel: two clones of one machine must not draw the same.
func newToken() string {
	b := make([]byte, 9)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:11]
}

// A cas is one compare-and-set of an entry, from a revision that was read just before. The zero value stands for none.
type cas struct {
	token  string
	base   uint64 // the revision that it replaces
	before tokens // of the entry at base
}

func newCAS(base uint64, before tokens) cas { return cas{newToken(), base, before} }

// tokens returns those that the entry bears if the compare-and-set lands.
func (c cas) tokens() tokens { return c.before.add(c.token) }

// An outcome is what became of a compare-and-set, as a later read of the entry shows it.
type outcome int

const (
	none    outcome = iota // the cas is zero: nothing was sent
	landed                 // it wrote the entry that was read, or an entry that this one replaced
	open                   // the entry is still the one to be replaced: the write may land later, or never
	refused                // it never lands: the entry has the newest token at base, and the tokens of all writes since
	unknown                // too many other writes have replaced the entry to decide
)

// outcome returns the outcome of the compare-and-set, given a later read of the entry.
//
// Law: landed means that this compare-and-set, and no other, replaced the entry at base. So the range that it reserved
// belongs to this process alone, as after an acknowledgement, however often the entry was replaced since.
func (c cas) outcome(revision uint64, now tokens) outcome {
	switch {
	case c.token == "":
		return none
	case now.bear(c.token):
		return landed
	case revision == c.base && now == c.before: // one write from base can land: it may be sent again
		return open
	case now.bear(c.before.newest()):
		return refused
	}
	return unknown
}
