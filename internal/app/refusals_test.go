package app

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/worker"
)

func TestAModeIsAllowedOnlyWhenEachSourceAllowsIt(t *testing.T) {
	var r refusals
	back, second := errors.New("the marks went back"), errors.New("a second registry")
	want := func(mode worker.Mode, all ...error) {
		t.Helper()
		why := r.why(mode)
		if (why == nil) != (len(all) == 0) {
			t.Errorf("%s: %v, want %v", mode, why, all)
		}
		for _, err := range all {
			if !errors.Is(why, err) {
				t.Errorf("%s: %v, want %v in it", mode, why, err)
			}
		}
	}
	want(worker.Segment)
	r.refuse("marks", back, worker.Segment)
	r.refuse("registry", second, worker.Segment, worker.Snowflake)
	want(worker.Segment, back, second)
	want(worker.Snowflake, second)
	want(worker.Tags)
	r.allow("registry", worker.Segment, worker.Snowflake)
	want(worker.Segment, back)
	want(worker.Snowflake)
	r.allow("marks", worker.Segment)
	want(worker.Segment)
}
