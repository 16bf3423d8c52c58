package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

A registry is where marks and worker numbers are durable. There must be one behind
the subjects of a namespace: where two answer, both stop until
"natsid resume --keep REGISTRY" says which one serves. The store is the bucket of
marks: of kind kv they are the tags, of kind mysql they guard a table. Tags are in
trouble if they cannot be served, if their numbers are nearly used up, or if loads
of a busy one fail.

Example:
  natsid status`,
	}
}

// Run implements the command.
func (*statusCmd) Run(s *session) error { return s.withJetStream(s.status) }

func (s *session) status(ctx context.Context, js jetstream.JetStream) error {
	snapshot, err := s.look(ctx, js)
	if err != nil {
		return err
	}
	j := statusOf(snapshot.Overview(), snapshot.Busiest())
	var listed []subjects.TagInfo
	if snapshot.Answered() > 0 {
		listed, _ = s.allTags(ctx, js.Conn()) // what fails is shown as a state
	}
	r, err := inspect(ctx, onJetStream(js), s.namespace())
	j.addStore(r, err, listed)
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
		return errors.New(strings.Join(j.Wrong, "; "))
	}
	return nil
}

var errNoWorker = errors.New("no worker answers: start one, or name another server, namespace or user")

// look returns the workers as they answer now, with their busiest tags.
func (s *session) look(ctx context.Context, js jetstream.JetStream) (fleetview.Snapshot, error) {
	return fleetview.New(fleetview.Config{
		Conn: js.Conn(), Namespace: s.namespace(), Registry: s.numbers(js), Now: time.Now,
		Patience: 4 * time.Second, Quiet: 500 * time.Millisecond,
	}).Look(ctx, wire.ViewRequest{Busiest: true})
}

// statusJSON is the state of all workers, registries and stages, and of the store.
type statusJSON struct {
	Workers    []workerJSON           `json:"workers"`
	Registries []fleetview.Registered `json:"registries"`
	Store      storeJSON              `json:"store"`
	Stages     []wire.StageView       `json:"stages"`
	Tags       []tagTrouble           `json:"tags"`  // full ones first
	Wrong      []string               `json:"wrong"` // what an operator must attend to

	loadsNowhere bool // no worker that answers can load
}

// workerJSON is a worker that answers, or should.
type workerJSON struct {
	Instance string   `json:"instance"`
	Number   *int     `json:"number"` // null if the worker has none
	Version  string   `json:"version"`
	State    string   `json:"state"`
	Why      []string `json:"why,omitempty"`
}

// storeJSON is the store of the tags.
type storeJSON struct {
	Kind     string `json:"kind"`
	Registry string `json:"registry"`
	Tags     *int   `json:"tags"`               // null if it cannot be read
	State    string `json:"state"`              // "in order", or the remaining task
	Throttle int64  `json:"throttle,omitempty"` // of each tag, in IDs per second
}

type tagTrouble struct {
	Tag string `json:"tag"`
	Why string `json:"why"`
}

func statusOf(v fleetview.Overview, busiest []fleetview.Use) statusJSON {
	answered, loads := false, false
	j := statusJSON{
		Workers: []workerJSON{}, Registries: append([]fleetview.Registered{}, v.Registries...),
		Stages: append([]wire.StageView{}, v.Stages...), Tags: []tagTrouble{}, Wrong: []string{},
	}
	for _, r := range v.Rows {
		answered = answered || r.Answered
		loads = loads || r.Answered && r.Modes["segment"].State == wire.Ready
		j.Workers = append(j.Workers, workerJSON{r.Name(), r.Statistics.Number, r.Version, r.State, r.Why})
	}
	j.loadsNowhere = answered && !loads
	for _, f := range v.Faults() {
		j.wrong("%s", f.What)
	}
	for _, u := range busiest {
		if u.Failing {
			j.Tags = append(j.Tags, tagTrouble{u.Tag, "loads fail; its IDs last " + fleetview.Seconds(u.SecondsLeft)})
			j.wrong("tag %s: loads fail", u.Tag)
		}
	}
	return j
}

func (j *statusJSON) wrong(format string, args ...any) {
	j.Wrong = append(j.Wrong, clean(fmt.Sprintf(format, args...)))
}

// addStore adds the state of the store, and the tags that are full or nearly full, or cannot be served. Most of these
// show in their marks; others, such as a row of MySQL whose step is below 1, only in listed, a worker's list.
func (j *statusJSON) addStore(r kvstore.Report, err error, listed []subjects.TagInfo) {
	id := r.Identity
	j.Store = storeJSON{
		Kind: id.Kind, Registry: id.Registry, Tags: &r.Tags, State: storeState(r), Throttle: id.Throttle,
	}
	switch {
	case err != nil:
		j.Store.Tags, j.Store.State = nil, err.Error()
	case j.Store.State == inOrder && j.loadsNowhere:
		j.Store.State = "no worker loads"
	}
	if j.Store.State != inOrder {
		j.wrong("the store is not in order")
	}
	refused := make(map[string]string) // reason, by tag
	for tag, p := range r.Marks {
		if p.Undecided && !p.Disabled && r.Trouble == nil && id.Incident == nil {
			refused[tag] = "undecided since a resume: `natsid tag update " + tag + " --next-id N`"
		}
	}
	for _, t := range listed {
		if t.Unservable != "" && !t.Disabled && subjects.CheckTag(t.Tag) == nil { // a row's name may be no valid tag
			refused[t.Tag] = cmp.Or(refused[t.Tag], t.Unservable)
		}
	}
	used := make(map[string]float64)
	full := []tagTrouble{}
	for tag, why := range refused {
		full = append(full, tagTrouble{tag, why})
	}
	for tag, p := range r.Marks {
		part, why := fleetview.Full(p.Rules, p.Mark, time.Now())
		if used[tag] = part; !p.Disabled && refused[tag] == "" && why != "" {
			full = append(full, tagTrouble{tag, why})
		}
	}
	slices.SortFunc(full, func(a, b tagTrouble) int {
		return cmp.Or(cmp.Compare(used[b.Tag], used[a.Tag]), cmp.Compare(a.Tag, b.Tag))
	})
	for _, t := range full {
		j.wrong("tag %s: %s", t.Tag, t.Why)
	}
	j.Tags = append(full, j.Tags...)
}

func (j statusJSON) print(out *sheet) {
	out.head("WORKER\tNUMBER\tVERSION\tSTATE\tREASON")
	said := make(map[string]string) // by cause: whose it is that is printed
	for _, w := range j.Workers {
		why := make([]string, len(w.Why))
		for i, text := range w.Why {
			why[i] = once(said, text, w.Instance)
		}
		out.row(w.Instance, w.Number, w.Version, w.State, strings.Join(why, "; "))
	}
	out.head("REGISTRY\tERA\tLAYOUT\tPINNED\tWORKERS")
	for _, r := range j.Registries {
		out.row(r.Registry, r.Era, r.Layout, r.Pinned, r.Workers)
	}
	out.head("STORE\tREGISTRY\tTAGS\tSTATE")
	out.row(j.Store.Kind, j.Store.Registry, j.Store.Tags, once(said, j.Store.State, "store"))
	if n := j.Store.Throttle; n > 0 {
		out.line("Each tag is throttled to %d IDs/s, until `natsid throttle off`.", n)
	}
	if len(j.Stages) > 0 {
		out.head("STAGE\tFROM\tTO\tSTATE\tBEHIND\tREASON")
	}
	for _, t := range j.Stages {
		out.row(t.Name, t.From, t.To, t.Role, t.Behind, t.Why)
	}
	if len(j.Tags) > 0 {
		out.head("TAG\tTROUBLE")
	}
	for _, t := range j.Tags {
		out.row(t.Tag, t.Why)
	}
}

// once returns text, what is wrong with whose worker or store; if the same text was printed already, where.
func once(said map[string]string, text, whose string) string {
	mode, cause, ofMode := strings.Cut(text, ": not ready: ")
	if !ofMode {
		mode, cause = "", text
	}
	if first := said[cause]; first != "" {
		return strings.TrimPrefix(mode+": ", ": ") + "as " + first
	}
	said[cause] = strings.TrimSpace(whose + " " + mode)
	return text
}
