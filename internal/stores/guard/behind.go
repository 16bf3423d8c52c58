package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// behind is the rows that a poll could not bring in line with their marks. The next poll takes them last, so that rows
// which another session has locked do not starve the others.
type behind struct {
	mu     sync.Mutex
	failed map[string]error // by tag: why, at the last attempt
}

// catchUp calls f for all rows until ctx ends, or the table takes no writes at all. The error names some rows that are
// behind.
func (b *behind) catchUp(ctx context.Context, rows []segment.Row, f func(context.Context, segment.Row) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan segment.Row)
	var workers sync.WaitGroup
	for range min(catchUps, len(rows)) {
		workers.Go(func() {
			for row := range queue {
				err := bounded(ctx, row, f)
				if errors.Is(err, segment.ErrNoWrites) {
					stop(err)
				}
				b.note(row.Name, err)
			}
		})
	}
	for _, row := range b.last(rows) {
		select {
		case queue <- row:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	workers.Wait()
	return b.error(context.Cause(ctx))
}

func bounded(ctx context.Context, row segment.Row, f func(context.Context, segment.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	return f(ctx, row)
}

// last returns the rows in another order: those that failed are the last. It forgets others that failed.
func (b *behind) last(rows []segment.Row) []segment.Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed, last := make(map[string]error), []segment.Row{}
	ordered := make([]segment.Row, 0, len(rows))
	for _, row := range rows {
		if err := b.failed[row.Name]; err != nil {
			failed[row.Name], last = err, append(last, row)
		} else {
			ordered = append(ordered, row)
		}
	}
	b.failed = failed
	return append(ordered, last...)
}

// note records the outcome of a row.
func (b *behind) note(tag string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.failed, tag)
	} else {
		b.failed[tag] = err
	}
}

// error returns nil if no row is behind and nothing ended the work early.
func (b *behind) error(early error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.failed) == 0 {
		return early
	}
	var texts []string
	for _, tag := range slices.Sorted(maps.Keys(b.failed))[:min(namedFaults, len(b.failed))] {
		texts = append(texts, fmt.Sprintf("tag %s: %v", tag, b.failed[tag]))
	}
	if more := len(b.failed) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(texts, "; ")
	if early != nil {
		return fmt.Errorf("guard: not all rows and their marks were compared: %s: %w", text, early)
	}
	return fmt.Errorf("guard: %d rows and their marks do not agree: %s", len(b.failed), text)
}
