package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
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

func TestStatusSaysOneCauseOnce(t *testing.T) {
	id := era.Found("kv", time.Now())
	id.Incident = &era.Incident{
		ID: "I", Cause: era.WentBack, Provers: []era.Prover{{Name: "a", Why: "it holds another registry"}},
	}
	r := kvstore.Report{Identity: id}
	j := statusOf(fleetOf("not ready: "+storeState(r)).Overview(), nil)
	j.addStore(r, nil, nil)
	text := typeset(j.print).String() + strings.Join(j.Wrong, "; ")
	if strings.Count(text, "it holds another registry") != 1 || strings.Count(text, "as a segment") != 6 {
		t.Errorf("%s", text)
	}
}

func TestAStoreIsNotInOrderWhereNoWorkerLoadsAndNotCountedWhereItIsAway(t *testing.T) {
	r := kvstore.Report{Identity: era.Found("mysql", time.Now())}
	for state, want := range map[string]string{wire.Ready: inOrder, "not ready: away": "no worker loads"} {
		j := statusOf(fleetOf(state).Overview(), nil)
		if j.addStore(r, nil, nil); j.Store.State != want {
			t.Errorf("with workers that are %s the store is %s, want %s", state, j.Store.State, want)
		}
	}
	j := statusOf(fleetOf(wire.Ready).Overview(), nil)
	j.addStore(kvstore.Report{}, errors.New("away"), nil)
	if text := typeset(j.print).String(); !strings.HasSuffix(text, "\n-      -         -     away\n") {
		t.Errorf("%s", text)
	}
}
