package workerid

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// A state is what a worker keeps on its own disk to resume its number after a restart; the zero value is empty.
type state struct {
	Instance string      `json:"instance"`
	Number   *int        `json:"number,omitempty"` // the number that was held last
	Claim    *stateClaim `json:"claim,omitempty"`  // nil after a clean stop
	// Released is the claim to Number that a clean stop gave back; nil if there was no such stop.
	Released   *released  `json:"released,omitempty"`
	Deployment Deployment `json:"deployment"`
	Place      place      `json:"place"`
	Sum        string     `json:"sum"` // checksum of all other fields, see encode
}

// A stateClaim is a claim (a hold of a number for a window of time) as of its last acknowledged write.
type stateClaim struct {
	// Token and Until are those of the record. While the record has the token, or the registry is out of reach, the
	// next process may resume the rest of the window before Until.
	Token string `json:"token"`
	Until int64  `json:"until"` // Unix ms
	// Fence is a time above all ticks issued, at most Until, Unix ms. A higher fence is on disk before a tick at or
	// above the lower one is issued.
	Fence int64 `json:"fence"`
	// Clock is the wall clock when Fence was last moved, Unix ms; at most Until less reachOf.
	Clock int64 `json:"clock"`
}

// wrote reports whether this claim wrote record r, and the file is no old copy. A worker moves the fence, which bounds
// the times in its IDs, before it reports a time at or above the fence. A record with such a time has a newer file.
func (c *stateClaim) wrote(r Record) bool {
	return r.Token == c.Token && r.Until >= c.Until && r.Reported < c.Fence
}

// A released is a claim that a clean stop gave back, so that nobody holds the number any more.
type released struct {
	Token string `json:"token"`
	Free  int64  `json:"free"` // a time that none of its ticks reaches, Unix ms
}

// wrote reports whether the release wrote a record: then nobody has had the number since.
func (r *released) wrote(of Record) bool {
	return r != nil && of.Token == r.Token && of.Until == r.Free
}

// A place is a machine and a directory. A state file is used only where it was written.
type place struct {
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"` // inode of the directory
}

// encode returns the content of the file: the state as JSON, with its checksum as the last field. The checksum is that
// of a state whose sum is empty. Without it one wrong digit could lower the fence, below which all IDs may be issued
// already, and IDs would repeat.
func (st state) encode() []byte {
	st.Sum = ""
	digest := sha256.Sum256(st.json())
	st.Sum = hex.EncodeToString(digest[:])
	return append(st.json(), '\n')
}

func (st state) json() []byte {
	data, err := json.MarshalIndent(st, "", "")
	if err != nil {
		panic(err) // cannot happen: strings and integers
	}
	return data
}

// decodeState returns the state that data encodes. If encode would write the state otherwise, even by one byte,
// data is damaged: that is an error.
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
