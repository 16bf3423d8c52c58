package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/fleetview"
	"github.com/natsid/natsid/internal/terminal"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

type topCmd struct {
	Once bool
}

func (*topCmd) help() help {
	return help{
		summary: "Watch all workers: whether they serve, how much, and the latest alarms.",
		detail: `On a terminal it shows every two seconds what the first view of the page shows,
until q or ctrl-C; workers that need a look come first. Elsewhere, and with --once,
it prints that once, after two seconds, which the rates are of.

A worker that does not answer is shown as it was when it last did. The window is
how long a worker issues snowflakes without JetStream; OFFSET is its clock minus
JetStream's; LAG is how long requests wait for their turn.

Examples:
  natsid top
  natsid top --once
  natsid top --json | jq -r '.workers[] | select(.answered | not).name'`,
		values: map[string]string{"once": "Print one frame and end."},
	}
}

// Run implements the command.
func (c *topCmd) Run(s *session) error {
	nc, err := s.connect(nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := s.watchFleet(nc)
	if err != nil {
		return err
	}
	defer w.end()
	if !c.Once && !s.line.JSON {
		if t := terminal.Open(os.Stdin, s.stdout); t != nil {
			defer t.Close()
			return w.live(s.ctx, t, os.Getenv("NO_COLOR") == "")
		}
	}
	v, err := w.settled(s.ctx)
	if err != nil {
		return err
	}
	return s.print(v.json(), func(out io.Writer) error {
		for _, line := range v.frame(0, 0) {
			if _, err := fmt.Fprintln(out, line.text); err != nil {
				return err
			}
		}
		return nil
	})
}

// A fleetWatch is what `natsid top` shows.
type fleetWatch struct {
	nc    *nats.Conn
	ns    subjects.Namespace
	fleet *fleetview.Fleet
	end   func()

	mu     sync.Mutex
	alarms []subjects.AlarmEvent // the latest first
	heard  error                 // why they are not as of now
}

// alarmsEvery is how often the alarms are read.
const alarmsEvery = 10 * time.Second

// watchFleet watches until end is called.
func (s *session) watchFleet(nc *nats.Conn) (*fleetWatch, error) {
	js, err := s.jetStream(nc)
	if err != nil {
		return nil, err
	}
	w := &fleetWatch{nc: nc, ns: s.namespace()}
	w.fleet = fleetview.New(fleetview.Config{
		Conn: nc, Namespace: w.ns, Registry: s.onlyLook(js), Patience: 800 * time.Millisecond, Now: time.Now,
	})
	ctx, cancel := context.WithCancel(s.ctx)
	var reading sync.WaitGroup
	w.readAlarms(ctx, buckets.OnJetStream(js))
	reading.Go(func() {
		for tick(ctx, alarmsEvery) {
			w.readAlarms(ctx, buckets.OnJetStream(js))
		}
	})
	w.end = func() { cancel(); reading.Wait() }
	return w, nil
}

func (w *fleetWatch) readAlarms(ctx context.Context, streams buckets.Streams) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	alarms, err := app.KeptAlarms(ctx, streams, w.ns.AlarmBucket())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard = err; err == nil {
		w.alarms = alarms
	}
}

// onlyLook returns the registry for those who read it: where it has no buckets, none is made.
func (s *session) onlyLook(js jetstream.JetStream) fleetview.Registry {
	ns := s.namespace()
	return &lookingRegistry{
		check: func(ctx context.Context) error { return s.checkBuckets(ctx, js) },
		registry: kvregistry.New(js, kvregistry.Config{
			History: ns.HistoryBucket(), Workers: ns.WorkerBucket(),
			LeaseTTL: app.Default().LeaseTTL, WorkerSubject: ns.Worker,
		}),
	}
}

type lookingRegistry struct {
	check    func(context.Context) error
	registry *kvregistry.Registry
}

// Heartbeats implements [fleetview.Registry].
func (r *lookingRegistry) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	return r.registry.Heartbeats(ctx)
}

// Records implements [fleetview.Registry]: nothing that is shown is in records.
func (r *lookingRegistry) Records(context.Context) (map[int]workerid.Record, error) { return nil, nil }

// look returns the fleet as of now, or of a moment ago.
func (w *fleetWatch) look(ctx context.Context) (topView, error) {
	snapshot, err := w.fleet.Look(ctx, subjects.ViewRequest{})
	if err != nil {
		return topView{}, err
	}
	v := topView{
		Overview: snapshot.Overview(), at: snapshot.At, answered: snapshot.Answered(), namespace: w.ns,
		away: !w.nc.IsConnected(),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v.alarms, v.today = fleetview.Latest(w.alarms, snapshot.At)
	v.unheard = w.heard
	return v, nil
}

// settled returns the fleet once there are rates of the workers that answer. It returns an error if there is nobody.
func (w *fleetWatch) settled(ctx context.Context) (topView, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var begun time.Time
	for {
		v, err := w.look(ctx)
		switch {
		case err != nil:
			return v, err
		case len(v.Rows) == 0 && v.Registry != nil:
			return v, v.Registry
		case len(v.Rows) == 0:
			return v, nobodyError{fmt.Errorf("no worker answers in namespace %s; start natsid, or check --nats and "+
				"--namespace", w.ns)}
		case begun.IsZero():
			begun = v.at
		case v.at.After(begun):
			return v, nil
		}
		if !tick(ctx, 100*time.Millisecond) {
			return v, ctx.Err()
		}
	}
}

// live shows the fleet on a terminal until q is pressed or ctx ends.
func (w *fleetWatch) live(ctx context.Context, t *terminal.Terminal, colours bool) error {
	var shown []string
	for ctx.Err() == nil {
		v, err := w.look(ctx)
		if err != nil {
			break
		}
		if frame := painted(v.frame(t.Size()), colours); !slices.Equal(frame, shown) {
			if err := t.Show(frame); err != nil {
				return err
			}
			shown = frame
		}
		if key := t.Key(); key == 'q' || key == 'Q' {
			return nil
		}
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause // such as a right that is missing
	}
	return nil
}
