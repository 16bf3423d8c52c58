package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// fleetOf is a snapshot of workers a, b and c, whose modes have one state.
func fleetOf(state string) (s fleetview.Snapshot) {
	for _, name := range []string{"a", "b", "c"} {
		w := fleetview.Worker{Answered: true}
		w.Statistics.Instance, w.Statistics.Number = name, new(7)
		w.Modes = map[string]wire.ModeView{"segment": {State: state}, "snowflake": {State: state}}
		s.Workers = append(s.Workers, w)
	}
	return s
}

func TestStatusSaysACauseOnceForAllWorkers(t *testing.T) {
	id := era.Found("kv", time.Now())
	id.Incident = &era.Incident{
		ID: "I", Cause: era.WentBack, Provers: []era.Prover{{Name: "a", Why: "it holds another registry"}},
	}
	r := kvstore.Report{Identity: id}
	text := typeset(statusOf(fleetOf("not ready: "+storeState(r)), r, nil, nil).print).String()
	if strings.Count(text, "it holds another registry") != 2 || !strings.Contains(text, "\na, b, c: not ready ") {
		t.Errorf("want it of the workers, and of the store:\n%s", text)
	}
}

func TestAStoreIsNotInOrderWhereNoWorkerLoadsAndNotCountedWhereItIsAway(t *testing.T) {
	r := kvstore.Report{Identity: era.Found("mysql", time.Now())}
	for state, want := range map[string]string{wire.Ready: inOrder, "not ready: away": "no worker loads"} {
		if j := statusOf(fleetOf(state), r, nil, nil); j.Store.State != want {
			t.Errorf("with workers that are %s the store is %s, want %s", state, j.Store.State, want)
		}
	}
	j := statusOf(fleetOf(wire.Ready), kvstore.Report{}, errors.New("away"), nil)
	if text := typeset(j.print).String(); !strings.Contains(text, "\n-      -         -     away\n") {
		t.Errorf("%s", text)
	}
}

// A row of MySQL may have no mark yet, or a name that no subject can have.
func TestFaultsOfTagsComeFromMarksAndFromAWorkersList(t *testing.T) {
	full := segment.Rules{Max: 10}
	r := kvstore.Report{Identity: era.Found("mysql", time.Now()), Marks: map[string]kvstore.Present{
		"full": {Mark: 11, Rules: full}, "gone": {Mark: 11, Rules: full, Disabled: true},
		"nearly": {Mark: 10, Rules: full}, "on": {Mark: 5, Undecided: true}, "well": {Mark: 5},
	}}
	listed := []subjects.TagInfo{{Tag: "low", Unservable: "its step"}, {Tag: "a b", Unservable: "its name"}}
	want := []fleetview.Fault{
		{What: "tag full: 100% of its numbers are reserved", Do: "run `natsid tag update --max N full`"},
		{What: "tag low: its step"},
		{What: "tag on: " + wire.Undecided, Do: "run `natsid tag update --next-id N on`"},
		{What: "tag nearly: 90% of its numbers are reserved", Do: "run `natsid tag update --max N nearly`"},
	}
	if got := statusOf(fleetOf(wire.Ready), r, nil, listed).Wrong; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
