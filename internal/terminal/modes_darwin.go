package terminal

import "golang.org/x/sys/unix"

const (
	getModes, setModes = unix.TIOCGETA, unix.TIOCSETA
	noKey              = 0xff // in the place of a key that shall do nothing
)
