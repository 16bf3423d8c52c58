package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/internal/registry/era"
)

// mostUnanswered is after how many questions without answer a registry that announces itself counts as another one.
const mostUnanswered = 3

// meet looks at the other registries that were heard.
func (c *checker) meet(ctx context.Context) {
	own := c.registry.Identity()
	for _, heard := range c.peers.due() {
		isChosen := c.cfg.Pin != "" && c.cfg.Pin == own.Registry && !heard.Pinned
		if isChosen || own.Out != "" || own.Incident != nil || !heard.Serves() {
			continue
		}
		if err := c.meetOne(ctx, heard); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
			c.cfg.Log.Warn("another registry serves the same subjects, and cannot be examined yet", "registry",
				heard.Registry, "error", err)
		}
	}
}

// meetOne finds out whether another registry is there, and stops this one if so.
//
// Law: what was heard is proof of nothing. The own identity is read first, and the other worker reads its own for the
// answer: so if both are one registry, both see that. One that announces itself again and again and cannot be asked
// counts as another one: nothing else could keep the two apart.
func (c *checker) meetOne(ctx context.Context, heard Notice) error {
	if err := c.check(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := c.peers.ask(ctx, heard.Registry)
	if unanswered := c.peers.asked(heard.Registry, err); 0 < unanswered && unanswered < mostUnanswered {
		return err
	}
	if err != nil {
		n = heard
	}
	if n.Registry == c.own.Registry || !n.Serves() {
		return nil
	}
	return c.conflict(ctx, n)
}

// conflict stops this registry because of another one, or lets it leave if it was never used.
func (c *checker) conflict(ctx context.Context, n Notice) error {
	v, err := c.registry.read(ctx, false, false)
	if err != nil {
		return err
	}
	if v.id.Registry != c.own.Registry || v.id.Incident != nil || v.id.Out != "" {
		return errNewerRead
	}
	unused, err := c.peers.isUnused(ctx)
	if err != nil {
		return err
	}
	if unused && !n.Unused {
		return c.yield(ctx, &v, v.id, n.Registry)
	}
	return c.prove(ctx, &v, &finding{cause: era.Second, other: n.Registry, why: fmt.Sprintf("registry %s serves the "+
		"same subjects, and this worker rests on registry %s: both may give the same IDs", n.Registry, v.id.Registry)})
}

// yield takes this registry, which was never used, out for another one, and returns why nothing is served from then on.
func (c *checker) yield(ctx context.Context, v *view, next era.Identity, to string) error {
	next.Out = to
	if err := c.registry.replace(ctx, v, next); err != nil {
		return err
	}
	why := c.leave(v) // before this worker serves: the next check would be too late
	c.cfg.Serving.Alarm(era.Second, fmt.Sprintf("registry %s serves the same subjects; this worker rests on registry "+
		"%s, which was never used and leaves: connect this worker to the NATS of the other registry",
		to, next.Registry))
	return why
}

// giveWay takes a bucket without identity out for a registry that answers, as behind a leaf node, if this worker
// remembers nothing and nobody ever used the bucket. Then it returns why nothing is served.
//
// Law: who is asked by another registry checks its own first. So one that answers and has not found its identity gone
// rests on another bucket.
func (c *checker) giveWay(ctx context.Context, v *view) error {
	if unused, err := c.peers.isUnused(ctx); !unused || err != nil || v.revision != 0 {
		return err
	}
	all, _ := c.peers.all(ctx) // none is none
	other := slices.IndexFunc(all, func(n Notice) bool { return n.Registry != "" && n.Incident == "" && n.Serves() })
	if other < 0 {
		return nil
	}
	return c.yield(ctx, v, era.Found(c.cfg.Kind, v.stream.Created), all[other].Registry)
}

// takeOut takes this registry out for another one, unless it was decided otherwise.
func (c *checker) takeOut(ctx context.Context, keep string) error {
	if !IsID(keep) || keep == c.registry.Identity().Registry {
		return fmt.Errorf("%.40q cannot serve instead of this registry", keep)
	}
	v, err := c.registry.read(ctx, false, false)
	switch {
	case err != nil:
		return err
	case v.missing != nil:
		return v.missing
	case v.id.Out == keep:
		return nil
	case v.id.Out != "":
		return fmt.Errorf("registry %s is out for registry %s already", v.id.Registry, v.id.Out)
	}
	next := v.id
	next.Out = keep
	if err := c.registry.replace(ctx, &v, next); err != nil {
		return err
	}
	_ = c.check(ctx, false) // it stops this worker
	return nil
}
