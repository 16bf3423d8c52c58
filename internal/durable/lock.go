package durable

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// ErrInUse is returned where another process has locked a directory.
var ErrInUse = errors.New("the directory is in use by another process")

// Lock creates a directory if it is missing, and keeps other processes out of it that lock it, too, until unlock. After
// half a second unlock continues in the background: a disk that hangs must not delay a stop.
//
// Law: a write that was given up may still reach the disk, and replace a newer state by an older one. So the lock is
// held until every [Replace] has ended; when a process exits, the kernel sees to that.
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
			mu.Lock()
			for underWay[filepath.Clean(dir)] > 0 {
				ended.Wait()
			}
			mu.Unlock()
			_ = lock.Unlock() // it fails only for a lock that is not held
			close(released)
		}()
		select {
		case <-released:
		case <-time.After(time.Second / 2):
		}
	}, nil
}

// underWay counts the replacements under way in each directory. A disk that hangs keeps one under way for long after
// its caller has given up.
var (
	underWay = make(map[string]int)
	mu       sync.Mutex // guards underWay
	ended    = sync.NewCond(&mu)
)

// count adds n to the replacements under way in a directory.
func count(dir string, n int) {
	mu.Lock()
	defer mu.Unlock()
	underWay[dir] += n
	ended.Broadcast()
}
