package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

type statusCmd struct{}

func (*statusCmd) help() help {
	return help{
		summary: "Show the fleet: workers, registries, store, stages, and tags in trouble.",
		detail: `Its exit code is 1 while anything is wrong, or if no worker answers.

A registry is the JetStream that keeps marks and worker numbers. A namespace must
have one: if two answer, both stop until "natsid resume --keep REGISTRY" says which
one serves. The store is the bucket of marks: in kind kv they are the tags, in kind
mysql they guard a table. A tag is in trouble if it cannot be served, if its numbers
are nearly used up, or if it is busy and its loads fail. What is wrong stands last,
with what to type.`,
	}
}

func (*statusCmd) Run(s *session) error { return s.withJetStream(s.status) }

func (s *session) status(ctx context.Context, js jetstream.JetStream) error {
	snapshot, err := s.look(ctx, js)
	if err != nil {
		return err
	}
	var listed []subjects.TagInfo
	if snapshot.Answered() > 0 {
		listed, _ = s.allTags(ctx, js.Conn()) // an error shows in the states of the workers
	}
	r, err := s.inspect(ctx, js)
	j := statusOf(snapshot, r, err, listed)
	if missing := s.missing(); missing != nil {
		return missing
	}
	if err := s.print(j, j.print); err != nil {
		return err
	}
	switch {
	case snapshot.Answered() == 0:
		return errNoWorker
	case len(j.Wrong) > 0:
		return fmt.Errorf("%s, the first: %s", numberOf(len(j.Wrong), "fault"), clean(j.Wrong[0].What))
	}
	return nil
}

var errNoWorker = errors.New("no worker answers: start one, or name another server, namespace or user")

// look asks all workers for their states and busiest tags.
func (s *session) look(ctx context.Context, js jetstream.JetStream) (fleetview.Snapshot, error) {
	return fleetview.New(fleetview.Config{
		Conn: js.Conn(), Namespace: s.namespace(), Registry: s.numbers(js), Now: time.Now,
		Patience: 4 * time.Second, Quiet: 500 * time.Millisecond,
	}).Look(ctx, wire.ViewRequest{Busiest: true})
}

// statusJSON is the state of all workers, registries and stages (natsid stamp), and of the store of the tags.
type statusJSON struct {
	Workers    []workerJSON           `json:"workers"`
	Registries []fleetview.Registered `json:"registries"`
	Store      storeJSON              `json:"store"`
	Stages     []wire.StageView       `json:"stages"`
	Wrong      []fleetview.Fault      `json:"wrong"` // what an operator must attend to, the worst first
}

// workerJSON is a worker that answers, or should.
type workerJSON struct {
	Instance string   `json:"instance"`
	Number   *int     `json:"number"` // null if the worker has none
	Version  string   `json:"version"`
	State    string   `json:"state"`
	Why      []string `json:"why,omitempty"`
}

type storeJSON struct {
	Kind     string `json:"kind"`
	Registry string `json:"registry"`
	Tags     *int   `json:"tags"`               // number of tags; null if the store cannot be read
	State    string `json:"state"`              // "in order", or what an operator must do
	Throttle int64  `json:"throttle,omitempty"` // limit of each tag, in IDs per second; 0 means none
}

// statusOf returns the status of the workers in s and of the store in r; unread is why r could not be read. Most
// faults of tags show in r, but some, such as a row of MySQL whose step is below 1, only in listed, a worker's list
// of all tags.
func statusOf(s fleetview.Snapshot, r kvstore.Report, unread error, listed []subjects.TagInfo) statusJSON {
	v, id, loads := s.Overview(), r.Identity, false
	j := statusJSON{
		Workers: []workerJSON{}, Registries: append([]fleetview.Registered{}, v.Registries...),
		Stages: append([]wire.StageView{}, v.Stages...),
		Store: storeJSON{
			Kind: id.Kind, Registry: id.Registry, Tags: &r.Tags, State: storeState(r), Throttle: id.Throttle,
		},
	}
	for _, row := range v.Rows {
		loads = loads || row.Answered && row.Modes["segment"].State == wire.Ready
		j.Workers = append(j.Workers, workerJSON{row.Name(), row.Statistics.Number, row.Version, row.State, row.Why})
	}
	switch {
	case unread != nil:
		j.Store.Tags, j.Store.State = nil, unread.Error()
	case j.Store.State == inOrder && s.Answered() > 0 && !loads:
		j.Store.State = "no worker loads"
	}
	var wrong []fleetview.Fault
	if j.Store.State != inOrder {
		wrong = append(wrong, fleetview.Fault{What: "the store is not in order"})
	}
	j.Wrong = append([]fleetview.Fault{}, s.Wrong(append(wrong, tagFaults(r, listed)...))...)
	return j
}

func tagFaults(r kvstore.Report, listed []subjects.TagInfo) []fleetview.Fault {
	var all []fleetview.TagFault
	add := func(tag string, p kvstore.Present, why string) {
		if f, ok := fleetview.FaultOf(tag, p.Rules, p.Mark, why, time.Now()); ok && !p.Disabled {
			all = append(all, f)
		}
	}
	unservable := make(map[string]string)
	for _, t := range listed {
		unservable[t.Tag] = t.Unservable
		if _, ok := r.Marks[t.Tag]; !ok {
			add(t.Tag, kvstore.Present{Mark: int64(t.NextID), Disabled: t.Disabled}, t.Unservable)
		}
	}
	for tag, p := range r.Marks {
		why := unservable[tag]
		if p.Undecided && r.Trouble == nil && r.Identity.Incident == nil {
			why = wire.Undecided
		}
		add(tag, p, why)
	}
	return fleetview.FullestFirst(all)
}

func (j statusJSON) print(out *sheet) {
	out.head("WORKER\tNUMBER\tVERSION\tSTATE")
	for _, w := range j.Workers {
		out.row(w.Instance, w.Number, w.Version, w.State)
	}
	out.head("REGISTRY\tERA\tLAYOUT\tPINNED\tWORKERS")
	for _, r := range j.Registries {
		out.row(r.Registry, r.Era, r.Layout, r.Pinned, r.Workers)
	}
	out.head("STORE\tREGISTRY\tTAGS\tSTATE")
	out.row(j.Store.Kind, j.Store.Registry, j.Store.Tags, j.Store.State)
	if n := j.Store.Throttle; n > 0 {
		out.line("Each tag is throttled to %d IDs/s, until `natsid throttle off`.", n)
	}
	if len(j.Stages) > 0 {
		out.head("STAGE\tFROM\tTO\tSTATE\tBEHIND\tREASON")
	}
	for _, t := range j.Stages {
		out.row(t.Name, t.From, t.To, t.Role, t.Behind, t.Why)
	}
	if len(j.Wrong) > 0 {
		out.head("WRONG\tWHY\tREMEDY")
	}
	for _, f := range j.Wrong {
		out.row(f.What, f.Why, f.Do)
	}
}
