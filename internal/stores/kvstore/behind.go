package kvstore

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
	// catchUps is how many tags are brought in line at once. Loads need most of the connections.
	catchUps = 4
	// catchUpTimeout bounds one tag, whose row another session may have locked.
	catchUpTimeout = time.Second
	// mostNamed is how many tags a text names.
	mostNamed = 10
)

// behind is the rows that a poll could not bring in line with their marks. The next poll takes them last, so that rows
// which another session has locked do not starve the others.
type behind struct {
	mu     sync.Mutex
	failed map[string]error // by tag: why, at the last attempt
}

// catchUp calls f for all tags, some at once, until ctx ends or the table takes no writes at all. The error names some
// tags for which it failed.
func (b *behind) catchUp(
	ctx context.Context, atOnce int, tags []string, f func(context.Context, string) error,
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan string)
	var workers sync.WaitGroup
	for range min(atOnce, len(tags)) {
		workers.Go(func() {
			for tag := range queue {
				limited, cancel := context.WithTimeout(ctx, catchUpTimeout)
				err := f(limited, tag)
				cancel()
				if errors.Is(err, segment.ErrNoWrites) {
					stop(err)
				}
				b.note(tag, err)
			}
		})
	}
	for _, tag := range b.last(tags) {
		select {
		case queue <- tag:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	workers.Wait()
	return b.error(context.Cause(ctx))
}

// last returns the tags in another order: those that failed are the last. It forgets others that failed.
func (b *behind) last(tags []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first, last []string
	failed := make(map[string]error)
	for _, tag := range tags {
		if err := b.failed[tag]; err != nil {
			failed[tag], last = err, append(last, tag)
		} else {
			first = append(first, tag)
		}
	}
	b.failed = failed
	return append(first, last...)
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
	text := named(slices.Sorted(maps.Keys(b.failed)), func(tag string) string {
		return fmt.Sprintf("tag %s: %v", tag, b.failed[tag])
	})
	if early != nil {
		return fmt.Errorf("kvstore: not all tags were compared: %s: %w", text, early)
	}
	return fmt.Errorf("kvstore: %d tags are not as they should be: %s", len(b.failed), text)
}

// named returns a text of some of the tags, of which f returns what is said of each.
func named(tags []string, f func(tag string) string) string {
	var texts []string
	for _, tag := range tags[:min(mostNamed, len(tags))] {
		texts = append(texts, f(tag))
	}
	if more := len(tags) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
