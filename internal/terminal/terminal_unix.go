//go:build linux || darwin

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getModes)
	return err == nil
}

func sizeOf(f *os.File) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// quiet makes a terminal give keys one by one, within a fifth of a second, without showing them. Ctrl-C still ends the
// process; ctrl-Z would leave the shell in the frame, and is off.
func quiet(f *os.File) (restore func()) {
	was, err := unix.IoctlGetTermios(int(f.Fd()), getModes)
	if err != nil {
		return func() {} // no terminal: it has no keys
	}
	modes := *was
	modes.Lflag &^= unix.ICANON | unix.ECHO
	modes.Cc[unix.VMIN], modes.Cc[unix.VTIME], modes.Cc[unix.VSUSP] = 0, 2, noKey
	set := func(to *unix.Termios) { _ = unix.IoctlSetTermios(int(f.Fd()), setModes, to) } // fails if it is gone
	set(&modes)
	return func() { set(was) }
}

// readKey returns a key, or 0 once [quiet]'s time is over.
func readKey(f *os.File) byte {
	var key [1]byte
	if _, err := unix.IoctlGetTermios(int(f.Fd()), getModes); err != nil {
		return 0 // a file or a pipe is no keyboard
	}
	if n, err := unix.Read(int(f.Fd()), key[:]); n < 1 || err != nil {
		return 0
	}
	return key[0]
}
