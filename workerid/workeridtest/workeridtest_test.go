package workeridtest_test

import (
	"testing"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func TestFakeRegistryConforms(t *testing.T) {
	workeridtest.Run(t, func(*testing.T) func() workerid.Registry {
		m := new(workeridtest.Memory)
		return func() workerid.Registry { return &workeridtest.Fake{Memory: m} }
	})
}
