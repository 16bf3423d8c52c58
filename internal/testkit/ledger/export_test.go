package ledger

import "os"

// NewOf is New with chunks of n runs.
func NewOf(dir string, n int) *Ledger {
	l := New(dir)
	l.chunk, l.full = n, min(n, chunkMin)
	return l
}

// File returns the file on disk, nil if there is none.
func (l *Ledger) File() *os.File { return l.file }
