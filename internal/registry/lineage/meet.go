package lineage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/internal/registry/era"
)

// mostUnanswered is the number of questions without an answer after which an announced registry counts as another one.
const mostUnanswered = 3

// meet looks at the other registries that were heard.
func (c *checker) meet(ctx context.Context) {
	own := c.registry.Identity()
	for _, heard := range c.peers.due() {
		isChosen := c.cfg.Pin != "" && c.cfg.Pin == own.Registry && !heard.Pinned
		if isChosen || own.Incident != nil || isHarmless(own, heard) {
			continue
		}
		if err := c.meetOne(ctx, heard); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
			c.cfg.Log.Warn("another registry serves the same subjects, and cannot be examined yet", "registry",
				heard.Registry, "error", err)
		}
	}
}

// isHarmless reports whether the registry of a notice can repeat no ID of this one: both are the same registry, or the
// other is stopped for some registry and either was never used or is merged into this one.
func isHarmless(own era.Identity, n Notice) bool {
	return n.Registry == own.Registry || n.Other != "" && (n.Unused || own.IsOf(n.Registry))
}

// meetOne asks a registry that was heard, and stops this registry if the other is there.
//
// Law: an announcement proves nothing. This worker reads its identity before it asks, and the other worker reads its
// own before it answers. So if both are of one registry, the answer shows it. A registry that announces itself
// repeatedly and never answers counts as another one, since both may be serving.
func (c *checker) meetOne(ctx context.Context, heard Notice) error {
	if err := c.check(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := c.peers.ask(ctx, heard.Registry)
	unanswered := c.peers.asked(heard.Registry, err)
	if 0 < unanswered && unanswered < mostUnanswered {
		return err
	}
	if err != nil {
		n = heard
	}
	if isHarmless(c.last.id, n) {
		return nil
	}
	return c.conflict(ctx, n.Registry)
}

// conflict stops this registry because of another one.
func (c *checker) conflict(ctx context.Context, other string) error {
	unused, err := c.cfg.Unused(ctx)
	if err != nil {
		return err
	}
	v := c.last
	return c.prove(ctx, &v, second(other, unused))
}

func second(other string, unused bool) *finding {
	why := "both may give the same IDs"
	if unused {
		why = "this one was never used: connect its workers to the NATS of the other one"
	}
	return &finding{cause: era.Second, other: other, unused: unused, why: fmt.Sprintf(
		"registry %s serves the same subjects, and this worker rests on another one; %s", other, why)}
}

// givesWay returns the finding of a worker that remembers nothing and whose bucket has no identity. If the bucket was
// never used and another registry answers, the bucket is a second registry, such as one made behind a leaf node by
// mistake, and only this one stops. Otherwise the finding is f.
//
// Law: a worker checks its registry before it answers another one. So a worker that answers with an identity uses
// another bucket than this one.
func (c *checker) givesWay(ctx context.Context, v *view, f *finding) error {
	if unused, err := c.cfg.Unused(ctx); !unused || err != nil || v.revision != 0 {
		return cmp.Or(err, error(f))
	}
	all, _ := c.peers.all(ctx) // an error counts as no answer
	serves := func(n Notice) bool { return n.Registry != "" && n.Incident == "" }
	if i := slices.IndexFunc(all, serves); i >= 0 {
		return second(all[i].Registry, true)
	}
	return f
}

// stopFor stops this registry, snowflakes included, for another one that an operator keeps.
func (c *checker) stopFor(ctx context.Context, keep string) error {
	if !IsID(keep) || keep == c.registry.Identity().Registry {
		return fmt.Errorf("%.40q cannot serve instead of this registry", keep)
	}
	err := c.check(ctx, false)
	switch in := c.registry.Identity().Incident; {
	case in != nil && in.Other != "":
		return nil
	case err != nil && !errors.Is(err, ErrStopped):
		return err
	}
	return c.conflict(ctx, keep)
}
