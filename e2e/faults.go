package e2e

import (
	"time"

	"github.com/natsid/natsid/subjects"
)

// Stall lets requests for IDs wait for d before a worker gets them. A d of 0
// lasts until [Cluster.Resume]. Of Stall, Refuse and DropReplies one lasts at a
// time: each ends the one before.
func (c *Cluster) Stall(d time.Duration) { c.bed.Stall(d) }

// Refuse answers requests for IDs with the error code, one of [subjects.Codes],
// for d. A d of 0 lasts until [Cluster.Resume].
func (c *Cluster) Refuse(code subjects.Code, d time.Duration) {
	c.tb.Helper()
	c.must(c.bed.Refuse(code, d))
}

// DropReplies drops the replies to requests for IDs that workers get within d:
// the IDs are a hole. A d of 0 lasts until [Cluster.Resume].
func (c *Cluster) DropReplies(d time.Duration) { c.bed.DropReplies(d) }

// Resume ends what Stall, Refuse or DropReplies began. Workers get the requests
// that wait.
func (c *Cluster) Resume() { c.bed.Resume() }

// Restart stops all workers that run, cleanly, and starts them again. In between
// nobody serves.
func (c *Cluster) Restart() {
	c.tb.Helper()
	c.must(c.bed.Restart())
}

// Skip raises the next ID of each tag by at least n: by 1<<32 it breaks code
// that stores IDs in 32 bits, by 1<<53 code that stores them in a float64. There
// must be a tag. Where several workers serve, all but one follow a moment later.
func (c *Cluster) Skip(n int64) {
	c.tb.Helper()
	c.must(c.bed.Skip(n))
}

// must fails the test unless err is nil.
func (c *Cluster) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("e2e: %v", err)
	}
}
