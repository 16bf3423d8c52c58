package workerid

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A state is what a worker remembers on its own disk, so that it gets its
// number back after a restart. The zero value remembers nothing.
//
// A claim in it is trusted only on the machine and in the directory where it
// was written, and only while the record bears its token: a copy elsewhere
// must not issue under the same number. Whoever runs a keeper locks the
// directory against a second process.
type state struct {
	Instance   string      `json:"instance"`
	Number     *int        `json:"number,omitempty"` // the last one held
	Claim      *stateClaim `json:"claim,omitempty"`  // nil after a clean stop
	Deployment Deployment  `json:"deployment"`
	Place      place       `json:"place"`
}

// A stateClaim is the claim on a number as it was last acknowledged.
type stateClaim struct {
	// Token, Revision and Until are those of the last acknowledged write. The
	// token must be the record's; the others tell people what was held.
	Token    string `json:"token"`
	Revision uint64 `json:"revision"`
	Until    int64  `json:"until"` // Unix ms
	// Fence is a time that no issued tick reaches: it is on disk before
	// anything beyond it is issued. Unix ms.
	Fence int64 `json:"fence"`
}

// A place is where a state file may be believed.
type place struct {
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"` // of the directory
}

// A stateFile is the state and the file that holds it. A nil stateFile
// remembers nothing. It is safe for concurrent use.
type stateFile struct {
	path string

	mu sync.Mutex // guards state, and keeps writes to the file in order
	state
}

// change applies f to the state and writes it to the file, durably.
func (s *stateFile) change(f func(*state)) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.state)
	if err := writeState(s.path, s.state); err != nil {
		return fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	return nil
}

// fenceReach is how far the fence is put ahead of the clock: how long the
// disk may hang before issuing stops, and how long a process killed and
// started again at once waits.
const fenceReach = 3 * time.Second

// fence applies f, if not nil, moves the fence ahead of now, Unix ms, and
// returns how far IDs may be issued once that is on disk: up to the fence, but
// not beyond until.
func (s *stateFile) fence(now, until int64, f func(*state)) (limit int64, err error) {
	if s == nil {
		return until, nil
	}
	err = s.change(func(st *state) {
		if f != nil {
			f(st)
		}
		st.Claim.Fence = max(st.Claim.Fence, now+fenceReach.Milliseconds())
		limit = min(st.Claim.Fence, until)
	})
	return limit, err
}

// readState reads a state file. A missing one is a zero state. One that is
// damaged, or was written in another place, is an error; it is never believed
// in part.
func readState(path string) (s state, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return state{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("workerid: state file %s: %w", path, err)
	}
	here, err := placeOf(filepath.Dir(path))
	if err != nil {
		return state{}, err
	}
	if s.Place != here {
		return state{}, fmt.Errorf("workerid: state file %s was written in another place (%+v, this is %+v)", path, s.Place, here)
	}
	return s, nil
}

// writeState replaces a state file: whole or not at all, and on disk when it
// returns.
func writeState(path string, s state) (err error) {
	dir := filepath.Dir(path)
	if s.Place, err = placeOf(dir); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".new"
	if err := writeSynced(temp, append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func placeOf(dir string) (p place, err error) {
	if p.Host, err = os.Hostname(); err != nil {
		return place{}, err
	}
	// Without a machine ID the host name and the inode must do.
	if id, err := os.ReadFile("/etc/machine-id"); err == nil {
		p.Machine = string(id[:min(len(id), 32)])
	}
	p.Inode, err = inode(dir)
	return p, err
}
