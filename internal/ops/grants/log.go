package grants

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/workerid"
)

const (
	interval = time.Second     // between two writes of a process
	timeout  = 5 * time.Second // bounds an attempt to write an entry
	maxEntry = 160             // loads, raises and windows in an entry, which then has less than 60 kB
	maxQueue = 1000            // entries that wait to be written
)

// A Log collects the grants of this process and writes them into the stream. Until they are written it keeps them in
// memory, up to maxQueue entries. It is safe for concurrent use, and adding never blocks. A nil Log drops all grants.
type Log struct {
	Who func() Who
	// Write writes an entry. After an error it gets the same entry again, and readers ignore a second copy.
	Write func(ctx context.Context, body []byte) error

	sending *Entry // the entry that Flush writes; nil if there is none

	mu    sync.Mutex
	queue []*Entry // the entries after sending; grants are added to the last one
	n     uint64   // number of the last entry
}

// Raise adds a write that raised the mark of a tag, or may have: see [segment.Raised]. The IDs in between are in a load
// that is added later, or a hole.
func (l *Log) Raise(tag string, from, to int64, before segment.Run) {
	l.add(func(e *Entry) {
		e.Loads[tag] = append(e.Loads[tag], Load{Above: max(1, from), First: to, Last: to - 1, Before: before})
	})
}

// Load adds a load of a tag. If the raise of the mark for this load was added last, the load takes its place.
func (l *Log) Load(tag string, r segment.Loaded) {
	l.add(func(e *Entry) {
		g, all := Load{First: r.Start, Last: r.End - 1}, e.Loads[tag]
		n := len(all) - 1
		if n >= 0 && all[n].Above <= r.Start && all[n].First == r.End && all[n].Last < r.End {
			if g.Before = all[n].Before; all[n].Above < r.Start {
				g.Above = all[n].Above
			}
			all, n = all[:n], n-1
		}
		if n >= 0 && all[n].Last+1 == r.Start && g.Above == 0 && g.Before == (segment.Run{}) {
			all[n].Last = g.Last
		} else {
			all = append(all, g)
		}
		e.Loads[tag] = all
	})
}

// Window adds a window.
func (l *Log) Window(w workerid.Window) {
	l.add(func(e *Entry) { e.Windows = append(e.Windows, w) })
}

// add calls to, under the lock, with the entry that collects grants. If the queue is full it drops the grants: a gap in
// the numbers of entries shows that.
func (l *Log) add(to func(*Entry)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n == 0 || l.queue[n-1].added >= maxEntry {
		if l.n++; n == maxQueue {
			return
		}
		l.queue = append(l.queue, &Entry{N: l.n, Loads: make(map[string][]Load)})
	}
	last := l.queue[len(l.queue)-1]
	last.added++
	to(last)
}

// Run writes entries until ctx ends, and then the remaining ones, for at most the time that late returns then.
func (l *Log) Run(ctx context.Context, late func() time.Duration) {
	for jitter.Sleep(ctx, interval) == nil {
		_ = l.Flush(ctx) // after an error the next round tries again
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), late())
	defer cancel()
	for l.Flush(ctx) != nil && jitter.Sleep(ctx, 50*time.Millisecond) == nil {
	}
}

// Flush writes the entries that wait, and stops at the first error. It must not be called concurrently.
func (l *Log) Flush(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.sending == nil && len(l.queue) > 0 {
			l.sending, l.queue = l.queue[0], l.queue[1:]
		}
		l.mu.Unlock()
		if l.sending == nil {
			return nil
		}
		once, cancel := context.WithTimeout(ctx, timeout)
		l.sending.Who = l.Who()
		body, err := json.Marshal(l.sending)
		if err == nil {
			err = l.Write(once, body)
		}
		cancel()
		if err != nil {
			return err
		}
		l.sending = nil
	}
}
