package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

type workersCmd struct {
	All bool `help:"Also the numbers that are free again."`
}

// Help is shown below the flags.
func (workersCmd) Help() string {
	return `States: live, somebody reports under the number. blocked, nobody does, but its
window has not ended. free, anybody may take it.

A worker that was killed leaves its number blocked until UNTIL, a horizon away
at most (5 min by default), and takes it up again if it is started with the same
data. A number blocked for longer was last written by a worker whose clock ran
ahead: REPORTED is what that clock said. It needs no mending, since all others
take other numbers. OFFSET is how far a worker's clock is ahead of JetStream's.

Example:
  natsid workers`
}

// Run implements the command.
func (c *workersCmd) Run(s *session) error {
	nc, err := s.dial()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	ns := subjects.Namespace(s.line.Namespace)
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for _, bucket := range []string{ns.HistoryBucket(), ns.WorkerBucket()} { // looking must not make one
		_, err := js.KeyValue(ctx, bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("no natsid has run on this NATS in namespace %s", ns)
		}
		if err != nil {
			return err
		}
	}
	registry := kvregistry.New(js, kvregistry.Config{History: ns.HistoryBucket(), Workers: ns.WorkerBucket(), LeaseTTL: app.Default().LeaseTTL, WorkerSubject: ns.Worker})
	records, err := registry.Records(ctx)
	if err != nil {
		return err
	}
	leases, err := registry.Heartbeats(ctx)
	if err != nil {
		return err
	}
	now, err := registry.Time(ctx) // the clock of this machine may be wrong
	if err != nil {
		return err
	}
	return c.print(s, records, leases, now)
}

func (c *workersCmd) print(s *session, records map[int]workerid.Record, leases map[int]workerid.Heartbeat, now int64) error {
	table := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NUMBER\tINSTANCE\tSTATE\tSINCE\tOFFSET\tREPORTED\tUNTIL")
	for _, w := range slices.Sorted(maps.Keys(records)) {
		r := records[w]
		l, live := leases[w]
		state, since, offset, reported := "free", "-", "-", r.Reported
		switch {
		case live:
			state, since, offset, reported = "live", moment(l.Since), signed(l.Offset()), l.Time
		case r.Until > now:
			state = "blocked"
		case !c.All:
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", w, r.Instance, state, since, offset, moment(reported), moment(r.Until))
	}
	return table.Flush()
}

// signed returns a clock's offset with its sign.
func signed(d time.Duration) string {
	if d.Abs() < time.Second {
		return fmt.Sprintf("%+dms", d.Milliseconds())
	}
	return fmt.Sprintf("%+.1fs", d.Seconds())
}

func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) }

type decodeCmd struct {
	ID int64 `arg:"" help:"The snowflake, in decimal."`
	layoutFlags
}

// Help is shown below the flags.
func (decodeCmd) Help() string {
	return `Examples:
  natsid decode 2124263042718941184
  natsid decode --layout article 270162187289683973`
}

// Run implements the command.
func (c *decodeCmd) Run(s *session) error {
	l, err := c.layout()
	if err != nil {
		return usage(err)
	}
	p, err := l.Decode(c.ID)
	if err != nil {
		return fmt.Errorf("%w; give the one that the workers have with --layout", err)
	}
	fmt.Fprintf(s.stdout, "time      %s\n", p.Time.Format(millis))
	if l.Site > 0 {
		fmt.Fprintf(s.stdout, "site      %d\nmachine   %d\n", p.Site, p.Machine)
	}
	fmt.Fprintf(s.stdout, "worker    %d\n", p.Worker)
	if l.Business > 0 {
		fmt.Fprintf(s.stdout, "business  %d\n", p.Business)
	}
	fmt.Fprintf(s.stdout, "sequence  %d\n", p.Sequence)
	return nil
}

type versionCmd struct{}

// Help is shown below the flags.
func (versionCmd) Help() string {
	return `Example:
  natsid version`
}

// Run implements the command.
func (versionCmd) Run(s *session) error {
	fmt.Fprintf(s.stdout, "natsid %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// version is the module's version, as far as the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.1.0-dev"
}
