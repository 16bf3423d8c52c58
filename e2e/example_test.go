package e2e_test

import (
	"testing"

	"github.com/natsid/natsid/e2e"
)

// A test of yours that needs IDs starts a natsid in one line.
func Example() {
	_ = func(t *testing.T) { // func TestInvoice(t *testing.T) {
		ids := e2e.Start(t)
		id, err := ids.Client.Segment(t.Context(), "invoice")
		if err != nil || id != 1 {
			t.Errorf("the first invoice is %d, %v", id, err)
		}
	}
}

func TestOneLineIsEnough(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t)
	if id, err := ids.Client.Segment(t.Context(), "invoice"); err != nil || id != 1 {
		t.Errorf("the first ID of a tag is %d, %v", id, err)
	}
	if id, err := ids.Client.Snowflake(t.Context()); err != nil || id < 1<<60 {
		t.Errorf("a snowflake is %d, %v", id, err)
	}
}
