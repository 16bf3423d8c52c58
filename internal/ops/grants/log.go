package grants

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxKept bounds the grants and writes that wait to be written, some 7 MB, and the discards, some 3 MB; more are
// counted as lost.
const maxKept = 1 << 16

// interval is the time between two entries of a process.
const interval = time.Second

// Config is the settings of a [Log]. All fields must be set, but for Failed.
type Config struct {
	// Put writes an entry. After an error the same entry is written again: readers ignore the second copy.
	Put func(ctx context.Context, body []byte) error
	// Limit returns the maximum size of an entry in bytes.
	Limit func() int
	// Head returns the head of the next entry; it may change. ok reports whether entries can be written yet.
	Head func() (h Head, ok bool)
	// Failed, if set, is called with the outcome of each attempt to write, nil for a success, and with how many
	// grants this process could not keep so far.
	Failed func(err error, lost uint64)
	// Late returns how long writing the last entries may take at the stop.
	Late func() time.Duration
}

// A Log collects the grants of this process and writes them into the stream, an entry a second at most. It keeps them
// in memory until they are written, up to a bound. It is safe for concurrent use, and adding never blocks.
type Log struct {
	cfg Config

	mu        sync.Mutex
	kept      Batch             // except its head
	lost      uint64            // grants lost since the last entry
	lostTotal uint64            // grants lost in total
	recent    map[string][]Load // the last loads of the tags

	// Only the goroutine of Run uses these.
	unsent []byte // the entry to be written, nil if none
	entry  uint64 // number of the last entry
}

// New returns a log. It writes while Run runs.
func New(cfg Config) *Log {
	if cfg.Failed == nil {
		cfg.Failed = func(error, uint64) {}
	}
	return &Log{cfg: cfg, recent: make(map[string][]Load)}
}

// Load adds a load.
func (l *Log) Load(g Load) {
	l.keep(func() { l.kept.Loads = append(l.kept.Loads, g) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rememberLocked(g)
}

// Write adds a write of a mark that granted nothing.
func (l *Log) Write(w Write) { l.keep(func() { l.kept.Writes = append(l.kept.Writes, w) }) }

// Window adds a window.
func (l *Log) Window(w Window) { l.keep(func() { l.kept.Windows = append(l.kept.Windows, w) }) }

// keep calls add with the lock held if another grant or write can be kept; otherwise it counts one as lost.
func (l *Log) keep(add func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept.Loads)+len(l.kept.Windows)+len(l.kept.Writes) >= maxKept {
		l.loseLocked()
		return
	}
	add()
}

// Discard adds IDs of a load that were never issued.
func (l *Log) Discard(d Discard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept.Discards) >= maxKept { // discards must not take room from grants
		l.loseLocked()
		return
	}
	l.kept.Discards = append(l.kept.Discards, d)
}

func (l *Log) loseLocked() {
	l.lost++
	l.lostTotal++
}

// Run writes entries until ctx ends, and then the remaining grants and a last entry, if that succeeds in time.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.write(ctx, false)
		case <-ctx.Done():
			l.finish(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// putTimeout bounds an attempt to write an entry.
const putTimeout = 5 * time.Second

// write writes an entry, if there is one to write, and reports whether it did.
func (l *Log) write(ctx context.Context, end bool) bool {
	if l.unsent == nil && !l.begin(end) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	err := l.cfg.Put(ctx, l.unsent)
	if err == nil {
		l.unsent = nil
	}
	l.mu.Lock()
	gone := l.lostTotal
	l.mu.Unlock()
	l.cfg.Failed(err, gone)
	return err == nil
}

// begin makes an entry of the waiting grants, and reports whether there are any.
func (l *Log) begin(end bool) bool {
	head, ok := l.cfg.Head()
	if !ok {
		return false
	}
	l.mu.Lock()
	b := l.kept
	b.Head, b.Lost = head, l.lost
	if b.isEmpty() && b.Lost == 0 && (!end || l.entry == 0) {
		l.mu.Unlock()
		return false
	}
	l.kept, l.lost = Batch{}, 0
	l.mu.Unlock()
	l.entry++
	b.Entry, b.End = l.entry, end
	others := b.split()
	var left Batch
	l.unsent, left = b.encode(l.cfg.Limit())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Windows = append(left.Windows, l.kept.Windows...)
	l.kept.Loads = slices.Concat(left.Loads, others.Loads, l.kept.Loads)
	l.kept.Writes = slices.Concat(left.Writes, others.Writes, l.kept.Writes)
	l.kept.Discards = append(left.Discards, l.kept.Discards...)
	return true
}

// finish writes the remaining grants, and a last entry.
func (l *Log) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Late())
	defer cancel()
	for l.isPending() {
		if !l.write(ctx, false) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
	l.write(ctx, true)
}

// isPending reports whether grants or an entry wait to be written.
func (l *Log) isPending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsent != nil || !l.kept.isEmpty() || l.lost > 0
}

// Last returns the last few loads of a tag by this process, oldest first.
func (l *Log) Last(tag string) []Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.recent[tag])
}

// Bounds of the loads remembered per tag, and of the tags.
const (
	recentLoads = 8
	recentTags  = 10_000
)

// rememberLocked adds a load to the last loads of its tag. The lock is held.
func (l *Log) rememberLocked(g Load) {
	last, known := l.recent[g.Tag]
	for other := range l.recent {
		if known || len(l.recent) < recentTags {
			break
		}
		delete(l.recent, other)
	}
	if len(last) == recentLoads {
		last = append(last[:0], last[1:]...)
	}
	l.recent[g.Tag] = append(last, g)
}
