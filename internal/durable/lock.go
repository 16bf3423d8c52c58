package durable

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// ErrInUse is returned if another process has locked a directory.
var ErrInUse = errors.New("the directory is in use by another process")

// Lock creates a directory if it is missing, and locks it until unlock is called: no other process can lock it. unlock
// returns after half a second at most, and continues in the background: a disk that hangs must not delay a stop.
//
// Law: a write whose caller gave up may still reach the disk, and replace a newer state by an older one. So unlock
// keeps the lock until every [Replace] in the directory has ended. If the process exits, the kernel keeps it as long.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, err
	}
	if !got {
		return nil, ErrInUse
	}
	return func() {
		released := make(chan struct{})
		go func() {
			writes := writesIn(dir)
			writes.Lock()
			_ = lock.Unlock() // it fails only for a lock that is not held
			writes.Unlock()
			close(released)
		}()
		select {
		case <-released:
		case <-time.After(time.Second / 2):
		}
	}, nil
}

var writes sync.Map // directory → *sync.RWMutex

// writesIn returns the mutex of a directory. Each [Replace] holds it for reading until the write ends, which on a disk
// that hangs may be long after its caller gave up.
func writesIn(dir string) *sync.RWMutex {
	mu, _ := writes.LoadOrStore(filepath.Clean(dir), new(sync.RWMutex))
	return mu.(*sync.RWMutex)
}
