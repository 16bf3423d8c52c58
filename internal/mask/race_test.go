//go:build race

package mask

// raced reports whether the race detector is on: a call takes ten times as long, and sync.Pool forgets buffers.
const raced = true
