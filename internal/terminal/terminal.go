// Package terminal shows frames on the whole of a terminal, and reads single keys; it is internal to natsid and may
// change.
package terminal

import (
	"io"
	"os"
	"strings"
	"time"
	"unicode"
)

// A Terminal shows frames. It is not safe for concurrent use.
type Terminal struct {
	in, out *os.File
	restore func()
}

// Standard sizes, where a terminal does not say its own.
const (
	standardColumns = 80
	standardLines   = 24
)

const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another screen, no cursor, no wrapping of long lines
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	// What a frame leaves of the one before it is cleared line by line, so nothing is blank for a moment.
	endOfLine  = "\x1b[K"
	endOfFrame = "\x1b[J"
)

// Open takes over the terminal that out is, and keys from in, until Close. It returns nil if out is none, or one that
// can do nothing but print.
func Open(in *os.File, out io.Writer) *Terminal {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !isTerminal(f) {
		return nil
	}
	t := &Terminal{in: in, out: f, restore: quiet(in)}
	_, _ = io.WriteString(f, enter) // if it is gone, so is who looks
	return t
}

// Close gives the terminal back as it was.
func (t *Terminal) Close() {
	_, _ = io.WriteString(t.out, leave)
	t.restore()
}

// Size returns the columns and lines that the terminal has now.
func (t *Terminal) Size() (columns, lines int) {
	columns, lines = sizeOf(t.out)
	if columns <= 0 || lines <= 0 {
		return standardColumns, standardLines
	}
	return columns, lines
}

// Show replaces the frame. It is written at once: no part of it is ever missing.
func (t *Terminal) Show(lines []string) error {
	var frame strings.Builder
	frame.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			frame.WriteString("\r\n")
		}
		frame.WriteString(line + endOfLine)
	}
	frame.WriteString(endOfFrame)
	_, err := io.WriteString(t.out, frame.String())
	return err
}

// keyWait is how long a key is waited for.
const keyWait = 200 * time.Millisecond

// Key waits a fifth of a second for a key, and returns 0 if none is pressed.
func (t *Terminal) Key() byte {
	began := time.Now()
	if key := readKey(t.in); key != 0 {
		return key
	}
	time.Sleep(keyWait - time.Since(began)) // at the end of input it returns at once
	return 0
}

// Clean returns text without what a terminal would obey instead of showing it: texts come from other machines.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, text)
}
