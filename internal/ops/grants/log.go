package grants

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxKept bounds the grants and raises that wait to be written, some 7 MB.
const maxKept = 1 << 16

// interval is the time between two writes of a process.
const interval = time.Second

// Config is the settings of a [Log]. All fields must be set.
type Config struct {
	// Put writes an entry. After an error the same entry is written again: readers ignore the second copy.
	Put func(ctx context.Context, entry []byte) error
	// Limit returns about how long an entry may be, in bytes.
	Limit func() int
	// Who returns the writer; ok reports whether entries can be written yet.
	Who func() (w Who, ok bool)
	// Wrote is called with the outcome of each attempt to write, nil for a success, and with how many grants and
	// raises found no room so far.
	Wrote func(err error, lost uint64)
	// Late returns how long writing the last entries may take at the stop.
	Late func() time.Duration
}

// A Log collects the grants of this process and writes them into the stream. It keeps them in memory until they are
// written, up to a bound. It is safe for concurrent use, and adding never blocks.
type Log struct {
	cfg Config

	mu    sync.Mutex
	queue []*Entry // the last one grows, unless it has its number: then it is being written
	items int      // in queue
	lost  uint64
	n     uint64 // number of the last entry
}

// New returns a log. It writes while Run runs.
func New(cfg Config) *Log { return &Log{cfg: cfg} }

// Load adds a load of a tag in an era of the registry.
func (l *Log) Load(tag, era string, g Load) {
	l.add(era, len(tag), func(e *Entry) {
		if raised := e.Raised[tag]; len(raised) > 1 && raised[len(raised)-1][1] == g.Last+1 { // by this load
			e.Raised[tag] = raised[:len(raised)-1]
		} else if len(raised) == 1 && raised[0][1] == g.Last+1 {
			delete(e.Raised, tag)
		}
		all := e.Loads[tag]
		if n := len(all) - 1; n >= 0 && all[n].Last+1 == g.First && g.Above == 0 && all[n].Strict == g.Strict &&
			g.Time-all[n].Time < interval.Milliseconds() {
			all[n].Last = g.Last
			return
		}
		e.Loads[tag] = append(all, g)
	})
}

// Raise adds a write that raised the mark of a tag or may have, before it is known whether it grants a load. Its IDs
// are in that load, or a hole.
func (l *Log) Raise(tag string, s Span) {
	l.add("", len(tag), func(e *Entry) { e.Raised[tag] = append(e.Raised[tag], s) })
}

// Window adds a window.
func (l *Log) Window(w Window) { l.add("", 0, func(e *Entry) { e.Windows = append(e.Windows, w) }) }

// lineSize is about how long a grant is as JSON, without the tag's name.
const lineSize = 100

// add calls add with the entry that grows, with the lock held, or counts a grant for which there is no room. era is ""
// if any will do.
func (l *Log) add(era string, name int, add func(*Entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var e *Entry
	if n := len(l.queue); n > 0 {
		e = l.queue[n-1]
	}
	if e == nil || e.N > 0 || e.size >= l.cfg.Limit() || era != "" && e.Era != "" && e.Era != era {
		e = &Entry{Loads: make(map[string][]Load), Raised: make(map[string][]Span)}
		l.queue = append(l.queue, e)
	}
	if l.items >= maxKept {
		l.lost++
		e.Lost++
		return
	}
	if era != "" {
		e.Era = era
	}
	add(e)
	e.items, e.size, l.items = e.items+1, e.size+lineSize+name, l.items+1
}

// Run writes entries until ctx ends, and then the remaining ones, if that succeeds in time.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.write(ctx)
		case <-ctx.Done():
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.Late())
			defer cancel()
			for !l.write(late) && late.Err() == nil {
				select {
				case <-time.After(50 * time.Millisecond):
				case <-late.Done():
				}
			}
			return nil
		}
	}
}

// putTimeout bounds an attempt to write an entry.
const putTimeout = 5 * time.Second

// write writes what waits, and reports whether nothing is left.
func (l *Log) write(ctx context.Context) bool {
	who, ok := l.cfg.Who()
	for {
		e, lost := l.next(who, ok)
		if e == nil {
			return true
		}
		if !ok {
			return false
		}
		body, err := json.Marshal(e)
		if err != nil {
			panic(err) // cannot be: strings and numbers
		}
		once, cancel := context.WithTimeout(ctx, putTimeout)
		err = l.cfg.Put(once, body)
		cancel()
		l.cfg.Wrote(err, lost)
		if err != nil {
			return false
		}
		l.mu.Lock()
		l.queue, l.items = l.queue[1:], l.items-e.items
		l.mu.Unlock()
	}
}

// next returns the next entry to be written, nil if there is none; with numbered it has its number, and grows no more.
func (l *Log) next(who Who, numbered bool) (*Entry, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil, l.lost
	}
	e := l.queue[0]
	if numbered && e.N == 0 {
		l.n++
		e.N, e.Who = l.n, who
	}
	return e, l.lost
}

// Append writes entries for the marks that an operator's command raised. To a reader the command is a process.
func Append(put func(entry []byte) error, by string, raised map[string][]Span) error {
	e := Entry{Who: Who{Instance: by, Process: rand.Text()}}
	for tags := range slices.Chunk(slices.Sorted(maps.Keys(raised)), 1000) {
		e.N++
		e.Raised = make(map[string][]Span)
		for _, tag := range tags {
			e.Raised[tag] = raised[tag]
		}
		body, err := json.Marshal(e)
		if err == nil {
			err = put(body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
