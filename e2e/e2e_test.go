package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// t stands for the *testing.T that the examples' tests are given.
var t = new(exampletb.T)

func TestMain(m *testing.M) { goleak.VerifyTestMain(t.Around(m), natstest.Left()...) }

func TestOneLineIsEnough(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t)
	if id, err := ids.Client.Segment("invoice").Next(t.Context()); err != nil || id != 1 {
		t.Errorf("the first ID of a tag is %d, %v", id, err)
	}
	if id, err := ids.Client.Snowflake().Next(t.Context()); err != nil || id < 1<<60 {
		t.Errorf("a snowflake is %d, %v", id, err)
	}
}

func TestAWorkerKeepsItsNumberOverARestart(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t)
	number := ids.WorkerNumber(0)
	ids.StopWorker(0)
	ids.StopWorker(0) // does nothing
	ids.StartWorker(0)
	if got := ids.WorkerNumber(0); got != number {
		t.Errorf("it had number %d, then %d", number, got)
	}
}
