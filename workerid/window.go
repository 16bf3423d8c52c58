package workerid

// A Window is what a process may put into IDs under a number: the times [From, Until), in Unix ms. All windows of one
// claim have the same From, and each replaces the one before.
type Window struct {
	Number      int
	From, Until int64
	How         How
}

// How says how a window came about.
type How string

// How windows come about.
const (
	Acquired How = "acquired"
	// Resumed windows are the rest of one that an earlier life of this worker had.
	Resumed How = "resumed"
	Renewed How = "renewed"
	// Closed windows end where the last ID was issued: nothing is issued in the rest.
	Closed How = "closed"
)

// report reports the window of a claim, which ends at until.
func (c *claim) report(how How, until int64) {
	if c.granted == nil {
		return
	}
	c.granted(Window{Number: c.number, From: c.from, Until: until, How: how})
}

// opened says how the first window of a claim came about.
func (c *claim) opened() How {
	if c.resumed || c.away {
		return Resumed
	}
	return Acquired
}
