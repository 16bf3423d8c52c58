package grants

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/workerid"
)

const (
	interval = time.Second     // between two writes of a process
	timeout  = 5 * time.Second // bounds an attempt to write an entry
	maxEntry = 200             // grants in an entry, which then has less than 50 kB
	maxQueue = 500             // entries that wait to be written
)

// A Log collects the grants of this process and writes them into the stream. Until they are written it keeps them in
// memory, up to maxQueue entries. It is safe for concurrent use, and adding never blocks. A nil Log drops all grants.
type Log struct {
	who   func() Who
	write func(ctx context.Context, body []byte) error

	mu    sync.Mutex
	queue []*Entry // grants are added to the last one, unless it is sealed
	n     uint64   // number of the last entry
}

// New returns a log, which writes while [Log.Run] runs. write writes an entry; after an error it gets the same entry
// again, and readers ignore a second copy.
func New(who func() Who, write func(ctx context.Context, body []byte) error) *Log {
	return &Log{who: who, write: write}
}

// Load adds a load of a tag, or a raise of its mark.
func (l *Log) Load(tag string, g Load) {
	l.add(func(e *Entry) {
		all := e.Loads[tag]
		n := len(all) - 1
		e.grants -= len(all)
		if n >= 0 && all[n] == Raise(cmp.Or(g.Above, g.First), g.Last+1) { // the record of this load's own raise
			all, n = all[:n], n-1
		}
		if n >= 0 && all[n].Last+1 == g.First && g.Above == 0 {
			all[n].Last = g.Last
		} else {
			all = append(all, g)
		}
		e.Loads[tag] = all
		e.grants += len(all)
	})
}

// Window adds a window.
func (l *Log) Window(w workerid.Window) {
	l.add(func(e *Entry) { e.Windows = append(e.Windows, w); e.grants++ })
}

// add calls to, under the lock, with the entry that collects grants. If the queue is full it drops the grants: a gap in
// the numbers of entries shows that.
func (l *Log) add(to func(*Entry)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n == 0 || l.queue[n-1].sealed || l.queue[n-1].grants >= maxEntry {
		if l.n++; n == maxQueue {
			return
		}
		l.queue = append(l.queue, &Entry{N: l.n, Loads: make(map[string][]Load), began: time.Now()})
	}
	to(l.queue[len(l.queue)-1])
}

// Run writes entries until ctx ends, and then the remaining ones, for at most the time that late returns then.
func (l *Log) Run(ctx context.Context, late func() time.Duration) {
	for jitter.Sleep(ctx, interval) == nil {
		_ = l.Flush(ctx) // after an error the next round tries again
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), late())
	defer cancel()
	for err := l.End(ctx); err != nil && jitter.Sleep(ctx, 50*time.Millisecond) == nil; err = l.Flush(ctx) {
	}
}

// End writes the remaining entries. Call it once nothing more is granted.
func (l *Log) End(ctx context.Context) error {
	l.add(func(e *Entry) { e.End = true })
	return l.Flush(ctx)
}

// Flush writes the entries that wait, and stops at the first error. It must not be called concurrently.
func (l *Log) Flush(ctx context.Context) error {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.mu.Unlock()
			return nil
		}
		e := l.queue[0]
		e.sealed = true
		l.mu.Unlock()
		once, cancel := context.WithTimeout(ctx, timeout)
		e.Who, e.Late = l.who(), time.Since(e.began) > moment/2
		body, err := json.Marshal(e)
		if err == nil {
			err = l.write(once, body)
		}
		cancel()
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.queue = l.queue[1:]
		l.mu.Unlock()
	}
}
