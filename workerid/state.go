package workerid

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	// Token, Revision and Until are those of the last acknowledged write. While
	// the record bears the token, or the registry is away, Until ends what the
	// next life may inherit.
	Token    string `json:"token"`
	Revision uint64 `json:"revision"`
	Until    int64  `json:"until"` // Unix ms
	// Fence is a time that no issued tick reaches: it is on disk before
	// anything beyond it is issued. Unix ms, not beyond Until.
	Fence int64 `json:"fence"`
}

// A place is where a state file may be believed.
type place struct {
	Host    string `json:"host"`
	Machine string `json:"machine,omitempty"`
	Inode   uint64 `json:"inode,omitempty"` // of the directory
}

// A stateFile is the state and the file that holds it. A nil stateFile
// remembers nothing.
type stateFile struct {
	path string
	// write replaces the file: whole or not at all, and on disk when it returns.
	write func(path string, data []byte) error
	place place
	// writing has room for one: whoever put something in may touch the state,
	// and writes the file. A write that hangs never takes it out again.
	writing chan struct{}
	// reach is how far the fence is put ahead of the clock.
	reach time.Duration
	state
}

// diskTimeout is how long a write of the state file may take, and how long it
// may wait for one that is under way.
const diskTimeout = 2 * time.Second

// change applies f to the state and writes it to the file, durably. The error
// is [ErrStateFile], also if the disk does not answer in time; the write may
// yet land then, and all later ones fail.
func (s *stateFile) change(f func(*state)) error {
	if s == nil {
		return nil
	}
	timeout := time.NewTimer(diskTimeout)
	defer timeout.Stop()
	slow := fmt.Errorf("%w: %s: the disk has not answered for %v", ErrStateFile, s.path, diskTimeout)
	select {
	case s.writing <- struct{}{}:
		timeout.Reset(diskTimeout)
	case <-timeout.C:
		return slow
	}
	f(&s.state)
	s.Place = s.place
	data, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		panic(err) // cannot be: strings and integers
	}
	done := make(chan error, 1)
	go func() { done <- s.write(s.path, append(data, '\n')) }()
	select {
	case err = <-done:
		<-s.writing
	case <-timeout.C:
		return slow
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStateFile, err)
	}
	return nil
}

// fenceReach is how far the fence is put ahead of the clock, and of the ticks
// that IDs may be ahead of it: how long the disk may hang before issuing stops,
// and how long a process killed and started again at once waits.
const fenceReach = 3 * time.Second

// fence applies f and moves the fence ahead of the clock, as it is when the
// write begins. It returns how far IDs may be issued once that is on disk.
func (s *stateFile) fence(now func() int64, until int64, f func(*state)) (limit int64, err error) {
	limit = until
	err = s.change(func(st *state) {
		f(st)
		// Within until, so that a wrong clock cannot carry it away for good.
		st.Claim.Fence = max(st.Claim.Fence, min(now()+s.reach.Milliseconds(), until))
		limit = min(st.Claim.Fence, until) //mutant:fence-written
	})
	return limit, err
}

// reachOf returns the reach of a fence for ticks of unit ms: a burst begins the
// tick after next of the clock's at most.
func reachOf(unit int64) time.Duration { return fenceReach + 2*time.Duration(unit)*time.Millisecond }

// openState reads the state file at path. A missing one is a zero state. One
// that is damaged, or was written in another place, is an error besides; it
// is never believed in part.
func openState(path string, unit int64) (*stateFile, error) {
	s := &stateFile{path: path, write: replaceFile, writing: make(chan struct{}, 1), reach: reachOf(unit)}
	var err error
	if s.place, err = placeOf(filepath.Dir(path)); err != nil {
		return s, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = s.read(data)
	}
	if err != nil {
		return s, fmt.Errorf("workerid: state file %s: %w", path, err)
	}
	return s, nil
}

func (s *stateFile) read(data []byte) error {
	var st state
	if err := json.Unmarshal(data, &st); err != nil {
		return err
	}
	if st.Place != s.place {
		return fmt.Errorf("it was written in another place (%+v, this is %+v)", st.Place, s.place)
	}
	s.state = st
	return nil
}

// replaceFile replaces the file at path.
func replaceFile(path string, data []byte) error {
	temp := path + ".new"
	if err := writeSynced(temp, data); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
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
