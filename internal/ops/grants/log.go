package grants

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// maxKept bounds what waits to be written, in bytes.
const maxKept = 8 << 20

// interval is the time between two writes of a process.
const interval = time.Second

// A Log collects the grants of this process and writes them into the stream. It keeps them in memory until they are
// written, up to a bound. It is safe for concurrent use, and adding never blocks. A nil log drops all.
type Log struct {
	put   func(ctx context.Context, e *Entry) error
	limit func() int

	mu    sync.Mutex
	queue []*Entry // the last one grows, unless it is sealed
	size  int      // of queue
	n     uint64   // number of the last entry
}

// New returns a log, which writes while Run runs. put writes an entry; after an error it gets the same entry again, and
// readers ignore the second copy. limit returns about how long an entry may be, in bytes.
func New(put func(ctx context.Context, e *Entry) error, limit func() int) *Log {
	return &Log{put: put, limit: limit}
}

// Load adds a load of a tag, or a raise of its mark.
func (l *Log) Load(tag string, g Load) {
	l.add(len(tag), func(e *Entry) {
		all := e.Loads[tag]
		n := len(all) - 1
		if n >= 0 && all[n] == Raise(cmp.Or(g.Above, g.First), g.Last+1) { // the raise by this load
			all, n = all[:n], n-1
		}
		if n >= 0 && all[n].Last+1 == g.First && g.Above == 0 {
			all[n].Last = g.Last
		} else {
			all = append(all, g)
		}
		e.Loads[tag] = all
	})
}

// Window adds a window.
func (l *Log) Window(w Window) { l.add(0, func(e *Entry) { e.Windows = append(e.Windows, w) }) }

// lineSize is about how long a grant is as JSON, without the tag's name.
const lineSize = 100

// add calls add with the entry that grows, with the lock held, or drops a grant for which there is no room: the next
// entry's number shows that.
func (l *Log) add(name int, add func(*Entry)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size >= maxKept {
		l.n++
		return
	}
	if n := len(l.queue); n == 0 || l.queue[n-1].sealed || l.queue[n-1].size >= l.limit() {
		l.n++
		l.queue = append(l.queue, &Entry{N: l.n, Loads: make(map[string][]Load)})
	}
	e := l.queue[len(l.queue)-1]
	add(e)
	e.size, l.size = e.size+lineSize+name, l.size+lineSize+name
}

// Run writes entries until ctx ends, and then the remaining ones, for late at most.
func (l *Log) Run(ctx context.Context, late func() time.Duration) {
	for jitter.Sleep(ctx, interval) == nil {
		_ = l.Flush(ctx) // it is called again
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), late())
	defer cancel()
	for l.Flush(ctx) != nil && jitter.Sleep(ctx, 50*time.Millisecond) == nil {
	}
}

// putTimeout bounds an attempt to write an entry.
const putTimeout = 5 * time.Second

// Flush writes what waits, until an error occurs. It must not be called concurrently.
func (l *Log) Flush(ctx context.Context) error {
	for e := l.next(); e != nil; e = l.next() {
		once, cancel := context.WithTimeout(ctx, putTimeout)
		err := l.put(once, e)
		cancel()
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.queue, l.size = l.queue[1:], l.size-e.size
		l.mu.Unlock()
	}
	return nil
}

// next returns the next entry to be written, which grows no more; nil if there is none.
func (l *Log) next() *Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	l.queue[0].sealed = true
	return l.queue[0]
}
