// Package setup is what e2e starts, and how the tests of natsid itself change
// the settings of its workers: other programs cannot name these settings.
package setup

import (
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

// A Cluster is what e2e.Start starts.
type Cluster struct {
	Workers   int
	Namespace subjects.Namespace
	// Configure changes the settings of a worker, counted from 0, before each of
	// its starts.
	Configure func(worker int, cfg *app.Config)
}

// Config returns an e2e.Option that sets Configure.
func Config(configure func(worker int, cfg *app.Config)) func(*Cluster) {
	return func(c *Cluster) { c.Configure = configure }
}
