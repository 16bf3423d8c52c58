// Package setup is how the tests of natsid itself change the settings of the workers that e2e starts: other programs
// cannot name these settings.
package setup

import (
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testbed"
)

// Config returns an e2e.Option that sets Configure.
func Config(configure func(worker int, cfg *app.Config)) func(*testbed.Config) {
	return func(c *testbed.Config) { c.Configure = configure }
}
