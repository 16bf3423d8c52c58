package segment

import (
	"sync"
	"time"
)

// failureLines is how many failed loads a second get a line in the log. All are
// counted; a caller that asks again and again for a tag that is used up, or
// thousands of tags without their store, would write as fast as they ask.
const failureLines = 20

// A failureLog bounds the lines about failed loads.
type failureLog struct {
	mu     sync.Mutex
	second time.Duration
	lines  int // in this second
	silent int // failures without a line since the last line
}

// line reports whether a failure gets a line, and how many before it got none.
func (f *failureLog) line(now time.Duration) (silent int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := now.Truncate(time.Second); s != f.second {
		f.second, f.lines = s, 0
	}
	if f.lines == failureLines {
		f.silent++
		return 0, false
	}
	f.lines++
	silent, f.silent = f.silent, 0
	return silent, true
}
