package workerid

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// A state is the part of a worker's state on its own disk, from which it can resume its number after a restart. The
// zero value remembers nothing.
type state struct {
	Instance string      `json:"instance"`
	Number   *int        `json:"number,omitempty"` // the last one held
	Claim    *stateClaim `json:"claim,omitempty"`  // nil after a clean stop
	// Released is the claim that a clean stop gave back; nil otherwise.
	Released   *released  `json:"released,omitempty"`
	Deployment Deployment `json:"deployment"`
	Place      place      `json:"place"`
	Sum        string     `json:"sum"` // checksum of all other fields, see sumOf
}

// A stateClaim is a claim as it was last acknowledged.
type stateClaim struct {
	// Token and Until are those of the last acknowledged write. While the record bears the token, or the registry is
	// out of reach, the next process may resume the rest of the window before Until.
	Token string `json:"token"`
	Until int64  `json:"until"` // Unix ms
	// Fence is a time that no issued tick reaches: it is on disk before anything beyond its old value is issued. Unix
	// ms, not beyond Until.
	Fence int64 `json:"fence"`
	// Clock is what the wall clock showed at the last move of the fence, at most Until minus the reach of a fence. Unix
	// ms.
	Clock int64 `json:"clock"`
}

// wrote reports whether record r is of the claim. A worker writes its file before it reports a time past the fence. So
// if r has such a time there is a newer file, and this one is a copy.
func (c *stateClaim) wrote(r Record) bool {
	return r.Token == c.Token && r.Until >= c.Until && r.Reported < c.Fence
}

// A released is the claim on Number that a clean stop gave back.
type released struct {
	Token string `json:"token"`
	Free  int64  `json:"free"` // a time that none of its ticks reaches, Unix ms
}

// wrote reports whether record r is of the release: nobody had the number since.
func (r *released) wrote(of Record) bool {
	return r != nil && of.Token == r.Token && of.Until == r.Free
}

// A place is a machine and a directory: a state file counts only where it was written.
type place struct {
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"` // inode of the directory
}

// encode returns the content of the file: the text that was summed, with the sum in its place at the end. A worker
// writes it again and again.
func (st state) encode() []byte {
	text := st.unsummed()
	end := len(text) - len("\"\n}")
	return fmt.Appendf(text[:end:end], "%s\"\n}\n", sumOf(text))
}

// sumOf returns the checksum of a state without its sum. Without it, one wrong digit would make a fence too low in half
// of the cases, and IDs would repeat.
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

// decodeState returns the state that encode wrote as data. It returns an error if encode would now write other bytes,
// since then the file is damaged.
func decodeState(data []byte) (st state, err error) {
	if err := json.Unmarshal(data, &st); err != nil {
		return state{}, err
	}
	if !bytes.Equal(st.encode(), data) {
		return state{}, errors.New("it is damaged: it is not as a worker wrote it, or its checksum does not match")
	}
	return st, st.valid()
}

// valid returns nil, or an error that says why no worker wrote the state.
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
