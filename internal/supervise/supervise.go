// Package supervise runs a command for as long as a lease lasts, and ends it before the lease does.
package supervise

import "time"

// A Command is a command to run under a lease, the time for which it may run.
type Command struct {
	Path string   // of the program
	Args []string // as in [os.StartProcess]: Args[0] is the program's name
	Env  []string
	// Until returns the end of the lease, which a renewal moves. If the lease is over at once, the error says why.
	Until func() (time.Time, error)
	// Say is called with messages for an operator. It must not block, or the command would be killed late.
	Say func(format string, args ...any)
}

// An End is how a command ended.
type End struct {
	Code    int   // its exit code, or 128 and the signal that ended it, as in a shell
	Because error // why Run ended it; nil if it ended by itself
	// Whole reports that all processes of the command ended before the lease did.
	Whole bool
}
