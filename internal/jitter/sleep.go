package jitter

import (
	"context"
	"time"
)

// Sleep returns nil after d, or the error of ctx if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return ctx.Err() // both may have happened
	case <-ctx.Done():
		return ctx.Err()
	}
}
