//go:build race

package mask

// raced reports whether the race detector is on. A call takes several times as long then, and sync.Pool forgets buffers.
const raced = true
