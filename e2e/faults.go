package e2e

import (
	"time"

	"github.com/natsid/natsid/subjects"
)

// Stall makes each request for IDs wait until d has passed since the call of Stall; if d is 0, until [Cluster.Resume].
// Stall, Refuse and DropReplies end each other: only the last call has an effect.
func (c *Cluster) Stall(d time.Duration) { c.bed.Stall(d) }

// Refuse answers requests for IDs with an error code, one of [subjects.Codes], until d has passed; if d is 0, until
// [Cluster.Resume].
func (c *Cluster) Refuse(code subjects.Code, d time.Duration) {
	c.tb.Helper()
	c.must(c.bed.Refuse(code, d))
}

// DropReplies drops the replies to requests for IDs that arrive before d has passed; if d is 0, before
// [Cluster.Resume]. The IDs are lost.
func (c *Cluster) DropReplies(d time.Duration) { c.bed.DropReplies(d) }

// Resume ends the effect of Stall, Refuse or DropReplies. Requests that wait are then answered.
func (c *Cluster) Resume() { c.bed.Resume() }

// Restart stops all running workers cleanly, and then starts them again. In between no worker serves.
func (c *Cluster) Restart() {
	c.tb.Helper()
	c.must(c.bed.Restart())
}

// Skip raises the next ID of each tag by at least n: 1<<32 breaks code that stores IDs in 32 bits, 1<<53 code that
// stores them in a float64. At least one tag must exist. With several workers, all but one follow a moment later.
func (c *Cluster) Skip(n int64) {
	c.tb.Helper()
	c.must(c.bed.Skip(n))
}

func (c *Cluster) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("e2e: %v", err)
	}
}
