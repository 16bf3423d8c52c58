package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/subjects"
)

type registryCmd struct{}

func (*registryCmd) help() help {
	return help{
		summary: "List the registries whose workers answer.",
		detail: `A registry is where marks and worker numbers are durable. There must be one behind
the subjects of a namespace. A leaf node or cluster with a JetStream of its own
makes a second one: then both stop, until "natsid resume --keep REGISTRY" says
which one serves.

States: serves; stopped, an incident is open; out for X, its workers serve nothing
since registry X serves the same subjects.

Example:
  natsid registry`,
	}
}

// Run implements the command.
func (*registryCmd) Run(s *session) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	all, err := registries(s.ctx, nc, s.namespace())
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return nobodyError{fmt.Errorf("no worker answers in namespace %s: check --nats and --namespace", s.namespace())}
	}
	list := []registryJSON{}
	for _, n := range all {
		list = append(list, registryJSON{n.Registry, n.Made.UTC(), n.Pinned, registryState(n), n.Incident, n.Out,
			n.Layout, time.UnixMilli(n.Epoch).UTC(), n.Unit})
	}
	return s.print(list, func(out io.Writer) { printRegistries(out, list) })
}

// registryJSON is a registry whose workers answer.
type registryJSON struct {
	Registry string    `json:"registry"`
	Made     time.Time `json:"made,omitzero"`
	Pinned   bool      `json:"pinned"` // by --registry
	State    string    `json:"state"`
	Incident string    `json:"incident,omitempty"` // the open one
	OutFor   string    `json:"out_for,omitempty"`  // the registry that serves instead
	Layout   string    `json:"layout"`
	Epoch    time.Time `json:"epoch"`
	UnitMs   int64     `json:"unit_ms"` // the length of a tick
}

func printRegistries(table io.Writer, all []registryJSON) {
	fmt.Fprintln(table, "REGISTRY\tMADE\tSTATE\tLAYOUT")
	for _, r := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Registry, instant(r.Made), r.State, r.Layout)
	}
}

func registryState(n lineage.Notice) string {
	switch {
	case n.Out != "":
		return "out for " + n.Out
	case n.Incident != "":
		return "stopped"
	}
	return "serves"
}

// registriesTimeout is how long the command waits for answers of registries.
const registriesTimeout = time.Second

// registries returns the notice of one worker of each registry.
func registries(ctx context.Context, nc *nats.Conn, ns subjects.Namespace) ([]lineage.Notice, error) {
	ctx, cancel := context.WithTimeout(ctx, registriesTimeout)
	defer cancel()
	bus := natsbus.New(nc, ns)
	all, err := lineage.AskFunc(bus.Ask).Notices(ctx, lineage.Notice{Process: rand.Text()})
	all = slices.DeleteFunc(all, func(n lineage.Notice) bool { return n.Registry == "" })
	if errors.Is(err, gather.ErrNobody) {
		err = nil
	}
	slices.SortFunc(all, func(a, b lineage.Notice) int { return strings.Compare(a.Registry, b.Registry) })
	return all, err
}
