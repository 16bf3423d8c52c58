package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

const (
	// catchUps is how many rows are updated to their marks at once. Loads need most of the connections.
	catchUps = 4
	// catchUpTimeout bounds one row, which another session may have locked.
	catchUpTimeout = time.Second
	// namedFaults is how many failed rows an error names.
	namedFaults = 10
)

// Behind is the rows that a poll could not bring in line with their marks. The next poll takes them last, so that
// rows which another session has locked do not starve the others.
type behind struct {
	mu     sync.Mutex
	failed map[string]bool // never changed, but replaced
}

// catchUp calls f for all rows until ctx ends, or the table takes no writes at all. The error names some failed rows.
func (b *behind) catchUp(ctx context.Context, rows []segment.Row, f func(context.Context, segment.Row) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var faults faults
	queue := make(chan segment.Row)
	var workers sync.WaitGroup
	for range min(catchUps, len(rows)) {
		workers.Go(func() {
			for row := range queue {
				err := bounded(ctx, row, f)
				if errors.Is(err, segment.ErrNoWrites) {
					stop(err)
				}
				faults.note(row.Name, err, b.last()[row.Name])
			}
		})
	}
	feed(ctx, rows, b.last(), queue)
	close(queue)
	workers.Wait()
	b.keep(rows, &faults)
	return faults.error(context.Cause(ctx))
}

// last returns the rows to be taken last.
func (b *behind) last() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// keep records the rows that failed, and those that failed before and were not reached.
func (b *behind) keep(rows []segment.Row, f *faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := make(map[string]bool)
	for _, row := range rows {
		if f.names[row.Name] || b.failed[row.Name] && !f.done[row.Name] {
			failed[row.Name] = true
		}
	}
	b.failed = failed
}

func bounded(ctx context.Context, row segment.Row, f func(context.Context, segment.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	return f(ctx, row)
}

// feed sends the rows until ctx ends, those in last at the end.
func feed(ctx context.Context, rows []segment.Row, last map[string]bool, queue chan<- segment.Row) {
	for _, round := range []bool{false, true} {
		for _, row := range rows {
			if last[row.Name] != round {
				continue
			}
			select {
			case queue <- row:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Faults are the rows that failed.
type faults struct {
	mu    sync.Mutex
	names map[string]bool
	done  map[string]bool // rows that failed before and did not now
	texts []string        // of the first few
}

// note records the outcome of a row. before means that the row failed in the last poll.
func (f *faults) note(tag string, err error, before bool) {
	if err == nil && !before {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil {
		f.names, f.done = make(map[string]bool), make(map[string]bool)
	}
	if err == nil {
		f.done[tag] = true
		return
	}
	f.names[tag] = true
	if len(f.texts) < namedFaults {
		f.texts = append(f.texts, fmt.Sprintf("tag %s: %v", tag, err))
	}
}

// error returns nil if no row failed and nothing ended the work early.
func (f *faults) error(early error) error {
	if len(f.names) == 0 {
		return early
	}
	text := strings.Join(f.texts, "; ")
	if more := len(f.names) - len(f.texts); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if early != nil {
		return fmt.Errorf("guard: not all rows and their marks were compared: %s: %w", text, early)
	}
	return fmt.Errorf("guard: %d rows and their marks do not agree: %s", len(f.names), text)
}
