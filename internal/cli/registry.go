package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/oneregistry/natsbus"
)

type registryCmd struct {
	List    registryListCmd    `cmd:"" default:"1"`
	Adopt   registryAdoptCmd   `cmd:""`
	Release registryReleaseCmd `cmd:""`
}

func (*registryCmd) help() help {
	return help{
		summary: "List the registries whose workers answer, or decide between two.",
		detail: `A registry is where marks and worker numbers are durable. There must be one behind
the subjects of a namespace. A leaf node or cluster with a JetStream of its own
makes a second one: then one of the two yields, and its workers serve nothing.`,
	}
}

type registryListCmd struct{}

func (*registryListCmd) help() help {
	return help{
		summary: "List the registries whose workers answer.",
		detail: `States: serves; yielded to X, its workers serve nothing since the workers of X
serve the same subjects; merging, it has yielded, and its marks are being merged.
WORKERS is how many have a heartbeat.

Example:
  natsid registry`,
	}
}

// Run implements the command.
func (*registryListCmd) Run(s *session) error {
	return s.withBus(5*time.Second, func(ctx context.Context, bus oneregistry.Bus) error {
		all, err := oneregistry.List(ctx, bus)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%w in namespace %s: check --nats and --namespace", oneregistry.ErrNobody, s.namespace())
		}
		list := []registryJSON{}
		for _, n := range all {
			list = append(list, registryJSON{n.ID, n.Made.UTC(), n.Workers, n.Pinned, n.Yields, n.Merged, n.Layout,
				time.UnixMilli(n.Epoch).UTC(), n.Unit})
		}
		return s.print(list, func(out io.Writer) error { return printRegistries(out, all) })
	})
}

// registryJSON is a registry whose workers answer.
type registryJSON struct {
	Registry string    `json:"registry"`
	Made     time.Time `json:"made,omitzero"`
	Workers  int       `json:"workers"` // that have a heartbeat
	Pinned   bool      `json:"pinned"`
	YieldsTo string    `json:"yields_to,omitempty"` // the registry that serves instead
	Merged   bool      `json:"merged"`              // its marks are merged into that one
	Layout   string    `json:"layout"`
	Epoch    time.Time `json:"epoch"`
	UnitMs   int64     `json:"unit_ms"` // the length of a tick
}

func printRegistries(out io.Writer, all []oneregistry.Notice) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REGISTRY\tMADE\tWORKERS\tSTATE\tLAYOUT")
	for _, n := range all {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", n.ID, instant(n.Made), n.Workers, registryState(n), n.Layout)
	}
	return table.Flush()
}

func registryState(n oneregistry.Notice) string {
	switch {
	case n.Yields == "":
		return "serves"
	case n.Merged:
		return "yielded to " + n.Yields
	}
	return "merging into " + n.Yields
}

type registryAdoptCmd struct {
	ID    string `arg:""`
	Force bool
}

func (*registryAdoptCmd) help() help {
	return help{
		summary: "Make one registry serve, and all others yield to it.",
		detail: `All other registries that answer stop serving, and merge their marks into this
one; then it serves, if it had yielded. Nothing is served in between, for a few
seconds. No ID repeats.

If the registry that served instead is gone for good, its marks cannot be merged.
Then raise all tags far above what it can have issued, as soon as --force has made
this registry serve.

Examples:
  natsid registry adopt 5N7LAQLGLLR4UQACIRT2BJPGKX
  natsid registry adopt 5N7LAQLGLLR4UQACIRT2BJPGKX --force && natsid tag raise --all --by 1000000`,
		values: map[string]string{
			"id":    "The registry, as `natsid registry` lists it.",
			"force": "Serve although the registry that served instead does not answer.",
		},
	}
}

// Run implements the command.
func (c *registryAdoptCmd) Run(s *session) error {
	if !oneregistry.IsID(c.ID) {
		return usage(fmt.Errorf("%q is not the ID of a registry: `natsid registry` lists them", c.ID))
	}
	return s.withBus(5*time.Minute, func(ctx context.Context, bus oneregistry.Bus) error {
		err := oneregistry.Adopt(ctx, bus, c.ID, c.Force)
		if errors.Is(err, oneregistry.ErrUnknown) {
			return usage(err)
		}
		if err != nil {
			return err
		}
		return s.print(servesJSON{[]string{c.ID}}, func(out io.Writer) error {
			_, err := fmt.Fprintf(out, "registry %s serves\n", c.ID)
			return err
		})
	})
}

type registryReleaseCmd struct{}

func (*registryReleaseCmd) help() help {
	return help{
		summary: "Let registries serve again that had yielded, once the others are separated.",
		detail: `Use it after you have repaired the topology: the registry that served instead must
not answer here any more, such as one that has a namespace of its own now. What it
issued meanwhile is unknown to the marks of the released one. If callers need IDs
that differ from those too, raise all tags at once.

Example:
  natsid registry release && natsid tag raise --all --by 1000000`,
	}
}

// Run implements the command.
func (*registryReleaseCmd) Run(s *session) error {
	return s.withBus(time.Minute, func(ctx context.Context, bus oneregistry.Bus) error {
		released, err := oneregistry.Release(ctx, bus)
		if err == nil && len(released) == 0 {
			err = errors.New("no registry that answers has yielded: nothing is released")
		}
		if len(released) == 0 {
			return err
		}
		return errors.Join(err, s.print(servesJSON{released}, func(out io.Writer) error {
			for _, id := range released {
				fmt.Fprintf(out, "registry %s serves again\n", id)
			}
			return nil
		}))
	})
}

// servesJSON lists the registries that serve now and did not before.
type servesJSON struct {
	Registries []string `json:"registries"`
}

// withBus calls f with what carries the messages of registries.
func (s *session) withBus(within time.Duration, f func(context.Context, oneregistry.Bus) error) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, within)
	defer cancel()
	return f(ctx, natsbus.New(nc, s.namespace()))
}
