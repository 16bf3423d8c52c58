package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// changeLayoutCmd has the flags --layout and --epoch too.
type changeLayoutCmd struct {
	Yes bool
}

func (*changeLayoutCmd) help() help {
	return help{
		summary: "Change the layout or the epoch of snowflakes, if no ID can repeat.",
		detail: `Two layouts give equal IDs, also at times far apart. So a layout is changed only
if all new IDs are above all old ones: more bits below the time field, or an
earlier epoch, make them larger. The command says which epoch is early enough.

Stop all workers first, with SIGTERM. It refuses while one answers or has a
heartbeat, and makes the old numbers useless to any that it cannot see. Then
start the workers with the new --layout and --epoch. Without --yes it shows what
it would do.

Example:
  natsid change-layout --layout 41+8+14 --yes`,
		values: map[string]string{"yes": "Do it."},
	}
}

// changeTimeout bounds the change: each number is asked for and written.
const changeTimeout = 5 * time.Minute

// Run implements the command.
func (c *changeLayoutCmd) Run(s *session) error {
	if !s.onCommandLine("layout") && !s.onCommandLine("epoch") {
		return usage(errors.New("--layout and --epoch are missing: the new ones"))
	}
	to, err := s.layout()
	if err != nil {
		return err
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
	defer cancel()
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	if err := s.checkBuckets(ctx, js); err != nil {
		return err
	}
	ns := s.namespace()
	registry := kvregistry.New(js, kvregistry.Config{
		History: ns.HistoryBucket(), Workers: ns.WorkerBucket(),
		LeaseTTL: app.Default().LeaseTTL, WorkerSubject: ns.Worker,
	})
	change, err := workerid.ChangeLayout(ctx, registry, to, c.Yes)
	if errors.Is(err, workerid.ErrNotAbove) {
		return notAbove(change, to)
	}
	if err != nil {
		return fmt.Errorf("this command did not change the layout: %w", err)
	}
	outcome := layoutChange{Changed: c.Yes, Old: sideOf(change.Old), New: sideOf(change.New), Records: change.Records}
	outcome.Old.Below, outcome.New.From = (*subjects.Decimal)(&change.Above), (*subjects.Decimal)(&change.Lowest)
	return s.print(outcome, func(out io.Writer) error { return c.print(out, change) })
}

// notAbove returns an error that says which epoch would do.
func notAbove(c workerid.Change, to snowflake.Layout) error {
	to.Epoch = c.Epoch
	if c.Epoch < 0 || to.Ends().Before(time.UnixMilli(c.New.From).AddDate(1, 0, 0)) {
		return fmt.Errorf("the layout is not changed: IDs of %s could repeat old ones, which are below %d, and no "+
			"epoch avoids that; take more bits below the time field, or keep the new IDs apart from the old ones, "+
			"in a namespace of their own", to, c.Above)
	}
	return fmt.Errorf("the layout is not changed: new IDs would begin at %d and could repeat old ones, which are "+
		"below %d; with layout %s, --epoch %s or an earlier one avoids that, and lasts until %s", c.Lowest, c.Above, to,
		time.UnixMilli(c.Epoch).UTC().Truncate(time.Second).Format(time.RFC3339), to.Ends().Format(time.DateOnly))
}

// layoutChange is what was changed, or would be with --yes.
type layoutChange struct {
	Changed bool       `json:"changed"` // false without --yes
	Old     layoutSide `json:"old"`
	New     layoutSide `json:"new"`
	Records int        `json:"records"` // of worker numbers
}

// layoutSide is a layout and a bound of its IDs.
type layoutSide struct {
	Layout string            `json:"layout"`
	Epoch  time.Time         `json:"epoch"`
	Below  *subjects.Decimal `json:"below,omitempty"` // all old IDs are below it
	From   *subjects.Decimal `json:"from,omitempty"`  // no new ID is below it
	Begins time.Time         `json:"begins,omitzero"` // no window of the new layout begins before
}

func sideOf(d workerid.Deployment) layoutSide {
	side := layoutSide{Layout: d.Layout, Epoch: time.UnixMilli(d.Epoch).UTC()}
	if d.From != 0 {
		side.Begins = time.UnixMilli(d.From).UTC()
	}
	return side
}

func (c *changeLayoutCmd) print(out io.Writer, change workerid.Change) error {
	row := func(what string, d workerid.Deployment, bound string, id int64) {
		fmt.Fprintf(out, "%s  layout %s, epoch %s, ticks of %d ms: all IDs are %s %d\n",
			what, d.Layout, time.UnixMilli(d.Epoch).UTC().Format(time.RFC3339Nano), d.Unit, bound, id)
	}
	row("old", change.Old, "below", change.Above)
	row("new", change.New, "from", change.Lowest)
	from := time.UnixMilli(change.New.From).UTC().Format(time.RFC3339Nano)
	if !c.Yes {
		_, err := fmt.Fprintf(out, "New IDs would begin at %s. Nothing was changed. Run it again with --yes.\n", from)
		return err
	}
	_, err := fmt.Fprintf(out, "Changed; %s taken from the last owners. New IDs begin at %s.\n"+
		"Start all workers with --layout %s --epoch %d.\n",
		numberOf(change.Records, "worker number"), from, change.New.Layout, change.New.Epoch)
	return err
}
