package workerid

// A Window is the times [From, Until) that a process may put into IDs under a number, in Unix ms. All windows of one
// claim have the same From, and each replaces the one before.
type Window struct {
	Number      int
	From, Until int64
	How         How
}

// How is the origin of a window.
type How string

// Origins of windows.
const (
	Acquired How = "acquired"
	// Resumed windows are the rest of a window of an earlier process of this worker.
	Resumed How = "resumed"
	Renewed How = "renewed"
	// Closed windows end with the last ID: nothing is issued in the rest of the window.
	Closed How = "closed"
)

// report reports the window of a claim, which ends at until.
func (c *claim) report(how How, until int64) {
	if c.granted == nil {
		return
	}
	c.granted(Window{Number: c.number, From: c.from, Until: until, How: how})
}

// opened returns the origin of the first window of a claim.
func (c *claim) opened() How {
	if c.resumed || c.resumedAway {
		return Resumed
	}
	return Acquired
}
