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

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
)

const (
	// catchUps is how many tags a poll compares with their rows concurrently. Loads need most of the connections.
	catchUps = 4
	// catchUpTimeout bounds one tag, whose row another session may have locked.
	catchUpTimeout = time.Second
	// mostNamed is how many tags an error names.
	mostNamed = 10
)

// each calls f for all tags, atOnce at a time, until ctx ends or the table takes no writes. The error names some tags
// for which f failed. each begins at a random tag, so that rows which another session has locked do not delay the same
// tags each time.
func each(ctx context.Context, atOnce int, tags []string, f func(context.Context, string) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	failed := make(map[string]error)
	one := func(tag string) {
		limited, cancel := context.WithTimeout(ctx, catchUpTimeout)
		defer cancel()
		err := f(limited, tag)
		if errors.Is(err, segment.ErrNoWrites) {
			stop(err)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed[tag] = err
		}
	}
	places := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	from := int(jitter.Source() * float64(len(tags)))
	for _, tag := range slices.Concat(tags[from:], tags[:from]) {
		if places <- struct{}{}; ctx.Err() != nil {
			break
		}
		calls.Go(func() { one(tag); <-places })
	}
	calls.Wait()
	early := context.Cause(ctx)
	if len(failed) == 0 {
		return early
	}
	text := named(slices.Sorted(maps.Keys(failed)), func(tag string) string {
		return fmt.Sprintf("tag %s: %v", tag, failed[tag])
	})
	if early != nil {
		return fmt.Errorf("kvstore: not all tags were compared: %s: %w", text, early)
	}
	return fmt.Errorf("kvstore: %d tags are not as they should be: %s", len(failed), text)
}

// named joins the texts that f returns for the first tags, and adds how many more tags there are.
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
