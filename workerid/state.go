package workerid

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// A state is what a worker remembers on its own disk, so that it can resume its
// number after a restart. The zero value remembers nothing.
type state struct {
	Instance string      `json:"instance"`
	Number   *int        `json:"number,omitempty"` // the last one held
	Claim    *stateClaim `json:"claim,omitempty"`  // nil after a clean stop
	// Released is the claim that a clean stop gave back; nil otherwise.
	Released   *released  `json:"released,omitempty"`
	Deployment Deployment `json:"deployment"`
	Place      place      `json:"place"`
	Version    int        `json:"v"`   // always [Version]
	Sum        string     `json:"sum"` // of all the rest, see sumOf
}

// A stateClaim is a claim as it was last acknowledged.
type stateClaim struct {
	// Token, Revision and Until are those of the last acknowledged write. While
	// the record bears the token, or the registry is out of reach, the next life
	// may resume what is left before Until.
	Token    string `json:"token"`
	Revision uint64 `json:"revision"`
	Until    int64  `json:"until"` // Unix ms
	// Fence is a time that no issued tick reaches: it is on disk before
	// anything beyond it is issued. Unix ms, not beyond Until.
	Fence int64 `json:"fence"`
	// Clock is the latest reading of the clock at which the fence was moved, but
	// no later than the reach of a fence before Until, Unix ms.
	Clock int64 `json:"clock"`
}

// A released claim is the last one on Number.
type released struct {
	Base   string `json:"base"`   // how its tokens begin
	Writes int    `json:"writes"` // before its release: later ones are of the release itself
	Free   int64  `json:"free"`   // none of its ticks reaches it, Unix ms
}

// wrote reports whether token is of the release.
func (r *released) wrote(token string) bool {
	return r != nil && (&series{base: r.Base, acked: r.Writes, wrote: math.MaxInt}).open(token)
}

// A place is where a state file may be believed.
type place struct {
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"` // of the directory
}

// encode returns the state as it stands in the file: the text that was summed, with
// the sum in its place at the end. A worker writes it again and again.
func (st state) encode() []byte {
	st.Version = Version
	text := st.unsummed()
	end := len(text) - len("\"\n}")
	return fmt.Appendf(text[:end:end], "%s\"\n}\n", sumOf(text))
}

// sumOf returns the checksum of a state without its sum. A fence of which one
// digit changed is too low in half of the cases, and IDs would repeat.
func sumOf(text []byte) string {
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

// unsummed returns the state as text with an empty sum, which is its last field.
func (st state) unsummed() []byte {
	st.Sum = ""
	data, err := json.MarshalIndent(st, "", "")
	if err != nil {
		panic(err) // cannot happen: strings and integers
	}
	return data
}

// decodeState returns the state that encode wrote, or an error: a file is believed
// only if encode writes the same bytes again, so that no byte of it is damaged.
func decodeState(data []byte) (st state, err error) {
	if err := json.Unmarshal(data, &st); err != nil {
		return state{}, err
	}
	if st.Version != Version {
		return state{}, fmt.Errorf("it is of version %d, this natsid reads version %d", st.Version, Version)
	}
	if !bytes.Equal(st.encode(), data) {
		return state{}, errors.New("it is damaged: it is not as a worker wrote it, or its checksum does not match")
	}
	return st, st.valid()
}

// valid returns an error that says why no worker wrote the state, or nil.
func (st state) valid() error {
	c := st.Claim
	if c == nil {
		return nil
	}
	if st.Number == nil || c.Token == "" || c.Fence <= 0 || c.Clock <= 0 || c.Until <= 0 || c.Until > maxTime {
		return fmt.Errorf("its claim is incomplete (%+v)", *c)
	}
	return nil
}
