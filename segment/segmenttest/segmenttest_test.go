package segmenttest_test

import (
	"testing"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestMemoryStoreConforms(t *testing.T) {
	segmenttest.Run(t, func(*testing.T) func() segment.Store {
		m := new(segmenttest.Memory)
		return func() segment.Store { return m }
	})
}
