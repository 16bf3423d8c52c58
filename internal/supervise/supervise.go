// Package supervise runs a command for as long as a lease lasts, and ends it before the lease does.
package supervise

import "time"

// A Command is a command to run. All fields but Args[0] stay as they are given.
type Command struct {
	Path string   // of the program
	Args []string // begins with its name
	Env  []string
	// Until returns the end of the lease, which moves while it is renewed, or why it is over at once.
	Until func() (time.Time, error)
	// Say is called with what a person must know. It must not block: who reads the output may hang, and the command is
	// killed even so.
	Say func(format string, args ...any)
}

// An End is how a command ended.
type End struct {
	Code    int   // its exit code, or 128 and the signal that ended it, as in a shell
	Because error // why it was told to end; nil if it ended by itself
	// Whole reports whether the last of the command's processes ended before the lease did.
	Whole bool
}
