package client

import "context"

// A Source gives IDs, as a [Handle] does. A program that takes a Source can be tested with one from memory: see the
// package clienttest.
type Source interface {
	Next(ctx context.Context) (ID, error)
	NextN(ctx context.Context, n int) (Runs, error)
}

var _ Source = (*Handle)(nil)
