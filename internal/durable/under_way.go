package durable

import (
	"path/filepath"
	"sync"
)

// underWay counts the replacements under way in each directory. A disk that hangs keeps one under way for long after
// its caller has given up.
var (
	underWay = make(map[string]int)
	mu       sync.Mutex // guards underWay
	ended    = sync.NewCond(&mu)
)

// begin counts a replacement until end is called.
func begin(path string) (end func()) {
	dir := filepath.Dir(path)
	mu.Lock()
	defer mu.Unlock()
	underWay[dir]++
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if underWay[dir]--; underWay[dir] == 0 {
			delete(underWay, dir)
		}
		ended.Broadcast()
	}
}

// Wait returns once this process replaces no file in a directory any more. It waits for a disk that hangs.
func Wait(dir string) {
	mu.Lock()
	defer mu.Unlock()
	for underWay[filepath.Clean(dir)] > 0 {
		ended.Wait()
	}
}
