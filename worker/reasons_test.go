package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

func TestAModeIsForbiddenUntilEachReasonIsCleared(t *testing.T) {
	var r worker.Reasons
	back, unchecked := errors.New("the marks went back"), errors.New("not checked yet")
	want := func(mode worker.Mode, all ...error) {
		t.Helper()
		if forbidden := r.Forbidden(mode); (forbidden == nil) != (len(all) == 0) {
			t.Errorf("%s: forbidden: %v, want %v", mode, forbidden, all)
		}
		for _, err := range all {
			if !errors.Is(r.Why(mode), err) {
				t.Errorf("%s: %v, want %v in it", mode, r.Why(mode), err)
			}
		}
	}
	want(worker.Segment)
	r.Set(worker.Stopped, back, worker.Segment)
	r.Set(worker.Unchecked, unchecked, worker.Segment, worker.Snowflake)
	want(worker.Segment, back, unchecked)
	want(worker.Snowflake, unchecked)
	want(worker.Tags)
	r.Clear(worker.Unchecked, worker.Segment, worker.Snowflake)
	want(worker.Segment, back)
	want(worker.Snowflake)
	r.Clear(worker.Stopped, worker.Segment)
	want(worker.Segment)
}

func TestOnlySomeReasonsForbidIDs(t *testing.T) {
	for reason, forbids := range map[worker.Reason]bool{
		worker.Unchecked: true, worker.Stopped: true, worker.Store: false,
		worker.Overload: false, worker.Number: false, worker.Rights: false,
	} {
		var r worker.Reasons
		r.Set(reason, errors.New("a cause"), worker.Segment)
		if got := r.Forbidden(worker.Segment) != nil; got != forbids || reason.Forbids() != forbids {
			t.Errorf("%s forbids IDs: %v, want %v", reason, got, forbids)
		}
	}
}

// The list is what /readyz, the log, the metrics and the page show.
func TestAWorkerListsAllReasonsToBeOut(t *testing.T) {
	t.Parallel()
	var reasons worker.Reasons
	keeps := func(_ *segment.Config, cfg *worker.Config) { cfg.Reasons = &reasons }
	r := start(t, natstest.Start(t), 0, newStore(t), keeps)
	if outs := r.worker.Outs(worker.Snowflake); len(outs) > 0 {
		t.Errorf("a worker that serves is out: %v", outs)
	}
	began := time.Now()
	reasons.Set(worker.Stopped, errors.New("stopped"), worker.Snowflake)
	r.issuer.Use(nil)
	r.worker.Wake()
	r.eventually("list both reasons", func() bool {
		outs := r.worker.Outs(worker.Snowflake)
		return len(outs) == 2 && outs[0].Reason == worker.Stopped && outs[1].Reason == worker.Number
	})
	before := r.worker.Outs(worker.Snowflake)
	time.Sleep(2 * time.Millisecond)
	r.worker.Wake()
	for i, o := range r.worker.Outs(worker.Snowflake) {
		if o.Why == nil || o.Since.Before(began) || !o.Since.Equal(before[i].Since) {
			t.Errorf("%+v, before %+v", o, before[i])
		}
	}
	r.issuer.Use(r.generator(time.Hour))
	reasons.Clear(worker.Stopped, worker.Snowflake)
	r.eventually("serve again", func() bool {
		return len(r.worker.Outs(worker.Snowflake)) == 0 && r.worker.Trouble(worker.Snowflake) == nil
	})
}
