package workerid

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/natsid/natsid/internal/durable"
)

// A stateFile is what a worker remembers for its next process, in memory and in the file worker.json. The file is
// used only if it is whole, and only on the machine and in the directory where it was written: a copy of a live
// worker's file has an older fence, and perhaps a token that still matches. The program locks the directory.
//
// The fence is a time on disk: this worker issues IDs only below the fence and within its window. After a crash the
// next process begins at the fence. Without a fence, a worker that was killed and restarted with its clock set back
// would repeat its last ticks. The fence is kept some seconds (fenceReach) ahead of the clock, but within the
// window, so that a wrong clock cannot move it far. A claim on another number gets a fence of its own.
//
// A write may take diskTimeout, and may wait as long for another write to end: see afterDisk. If a write fails, the
// fence cannot move: the number is given up, and the file not used any more. A write that hangs may land later,
// which is safe: its fence is above all IDs issued, and no other write began in between.
type stateFile struct {
	path string
	now  func() int64 // wall clock, Unix ms
	// write replaces the file: whole or not at all, and on disk when it returns.
	write func(data []byte) error
	place place
	// writing is a channel of capacity 1, used as a lock on the state and the file. change puts a value in; the
	// goroutine that writes the file takes the value out at the end, even if change has stopped waiting.
	writing chan struct{}
	// reach is how far moveFence puts the fence, the time below which IDs may be issued, ahead of the clock.
	reach time.Duration
	// absent reports that the file is not used, since there is no state directory, or a write failed.
	absent bool
	state
}

const (
	// diskTimeout is how long a write of the state file may take, and how long it may wait for one that is under way.
	diskTimeout = 2 * time.Second
	diskGrace   = 250 * time.Millisecond
	// fenceReach is how far the fence is put ahead of the clock, beyond the tick by which IDs may be ahead. A process
	// that is killed and restarted at once waits that long. The disk may hang half as long before requests wait.
	fenceReach = 3 * time.Second
	// fenceEvery is how often the fence, the time on disk below which IDs may be issued, is moved.
	fenceEvery = fenceReach / 2
)

// reachOf returns how far a fence (the time on disk below which IDs may be issued) is put ahead of the clock, for ticks
// of unit ms. It includes a tick, since a burst may put IDs a tick ahead of the clock.
func reachOf(unit int64) time.Duration { return fenceReach + time.Duration(unit)*time.Millisecond }

// openState reads the state file in directory dir, for a layout whose ticks have unit ms; "" means no directory. A
// missing file is a zero state. The error is why a file is ignored: it is damaged, or was written in another place.
func openState(dir string, unit int64, now func() int64) (*stateFile, error) {
	if dir == "" {
		return &stateFile{absent: true}, nil
	}
	s := &stateFile{
		path: filepath.Join(dir, "worker.json"), now: now, writing: make(chan struct{}, 1), reach: reachOf(unit),
	}
	s.write = func(data []byte) error {
		return durable.Replace(s.path, func(durable.FileID) []byte { return data })
	}
	if err := s.open(dir); err != nil {
		return s, fmt.Errorf("workerid: state file %s: %w", s.path, err)
	}
	return s, nil
}

func (s *stateFile) open(dir string) (err error) {
	if s.place, err = placeOf(dir); err != nil {
		return err
	}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.read(data)
}

func (s *stateFile) read(data []byte) error {
	st, err := decodeState(data)
	if err != nil {
		return err
	}
	if st.Place != s.place {
		return fmt.Errorf("it was written in another place (%+v, this is %+v)", st.Place, s.place)
	}
	s.state = st
	return nil
}

// DeploymentIn returns the deployment in the state file of a directory; a zero one if there is no usable file.
func DeploymentIn(dir string) Deployment {
	s, err := openState(dir, 1, nil)
	if err != nil {
		return Deployment{}
	}
	return s.Deployment
}

// change applies f to the state, and writes the file and syncs it. The error wraps [ErrStateFile]. If the disk does not
// answer in time, the write may land later.
func (s *stateFile) change(f func(*state)) error {
	if s.absent {
		return nil
	}
	slow := fmt.Errorf("%w: %s: the disk has not answered for %v", ErrStateFile, s.path, diskTimeout)
	timeout, stop := afterDisk()
	defer stop()
	select {
	case s.writing <- struct{}{}:
	case <-timeout:
		return slow
	}
	f(&s.state)
	s.Place = s.place
	data, done := s.encode(), make(chan error, 1)
	go func() {
		done <- s.write(data)
		<-s.writing
	}()
	timeout, stopWrite := afterDisk()
	defer stopWrite()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStateFile, err)
		}
		return nil
	case <-timeout:
		return slow
	}
}

// settle writes d, the settings that all workers share, into the file, and drops the state of another registry.
func (s *stateFile) settle(d Deployment, instance string) error {
	if s.absent || s.Deployment == d && s.Instance == instance {
		return nil
	}
	return s.change(func(st *state) {
		if st.Deployment != d {
			*st = state{Deployment: d}
		}
		st.Instance = instance
	})
}

// remember puts a claim with its acknowledged window, in which this process may issue, into the file. IDs may then be
// issued below limit, Unix ms.
func (s *stateFile) remember(number int, from int64, c stateClaim) (limit int64, err error) {
	return s.moveFence(c.Until, func(st *state) {
		c.Fence = from
		if st.Claim != nil && st.Number != nil && *st.Number == number {
			c.Fence, c.Clock = max(c.Fence, st.Claim.Fence), st.Claim.Clock
		}
		st.Number, st.Claim, st.Released = &number, &c, nil
	})
}

// moveFence applies f to the state, moves the fence ahead of the clock, but not beyond until, and writes the file.
// It reads the clock when the write begins. IDs may then be issued below limit, Unix ms.
func (s *stateFile) moveFence(until int64, f func(*state)) (limit int64, err error) {
	limit = until
	err = s.change(func(st *state) {
		f(st)
		// The fence, below which IDs may be issued, stays at or below until, so that a wrong clock cannot move it far.
		now := s.now()
		ahead := min(now+s.reach.Milliseconds(), until)
		st.Claim.Clock = max(st.Claim.Clock, ahead-s.reach.Milliseconds())
		st.Claim.Fence = max(st.Claim.Fence, ahead)
		limit = min(st.Claim.Fence, until) //mutant:fence-written
	})
	return limit, err
}

// forget removes the claim to the number from the file, so that no later process resumes it. r is the release at a
// clean stop; nil without one.
func (s *stateFile) forget(r *released) error {
	return s.change(func(st *state) { st.Claim, st.Released = nil, r })
}

// afterDisk returns a channel that is closed after diskTimeout plus diskGrace. The grace has a timer of its own,
// which starts late if this process stood still: then the write still has the grace to end.
func afterDisk() (late <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	timer := time.AfterFunc(diskTimeout, func() { time.AfterFunc(diskGrace, func() { close(c) }) })
	return c, timer.Stop
}

// own returns the released claim if it was on number w; otherwise nil.
func (s *stateFile) own(w int) *released {
	if s.absent || s.Number == nil || *s.Number != w {
		return nil
	}
	return s.Released
}

// number returns the number in the file, and reports whether there is one that this worker may take.
func (s *stateFile) number(mine Span) (w int, ok bool) {
	if s.absent || s.Number == nil {
		return 0, false
	}
	return *s.Number, mine.has(*s.Number)
}

// reported returns the clock's time when the fence, the limit of IDs on disk, was last moved, Unix ms; 0 without a
// fence.
func (s *stateFile) reported() int64 {
	if s.absent || s.Claim == nil {
		return 0
	}
	return s.Claim.Clock
}

// isIn reports whether the time now, Unix ms, is in the window of the file's claim, and not before the clock's time
// when the fence was last moved.
func (s *stateFile) isIn(now int64) bool {
	return !s.absent && s.Claim != nil && s.Claim.Clock <= now && now < s.Claim.Until
}

func placeOf(dir string) (p place, err error) {
	if p.Host, err = os.Hostname(); err != nil {
		return place{}, err
	}
	// Where there is no machine ID, the host name and the inode must suffice.
	if id, err := os.ReadFile("/etc/machine-id"); err == nil {
		p.Machine = string(id[:min(len(id), 32)])
	}
	info, err := os.Stat(dir)
	if err != nil {
		return place{}, err
	}
	p.Inode = durable.Inode(info)
	return p, nil
}
