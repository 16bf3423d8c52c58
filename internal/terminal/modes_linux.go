package terminal

import "golang.org/x/sys/unix"

const (
	getModes, setModes = unix.TCGETS, unix.TCSETS
	noKey              = 0 // in the place of a key that shall do nothing
)
