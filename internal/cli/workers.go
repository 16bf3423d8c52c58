package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
)

type workersCmd struct{}

func (*workersCmd) help() help {
	return help{
		summary: "List the worker numbers, their owners, and the ends of their windows.",
		detail: `States: live, a worker holds the number; blocked, its window has not ended. Free
numbers are not listed. "natsid status" says how the workers are.

A worker that was killed leaves its number blocked until UNTIL, at most a horizon
away (5 min by default), and resumes it if it is started with the same data. A
number that is blocked for longer was last written by a worker whose clock ran
ahead; REPORTED is what that clock said. Nothing needs to be done about it, since
all others acquire other numbers. PROGRAM ON is the host of a program that draws
its own snowflakes. OFFSET is a worker's clock minus JetStream's.`,
	}
}

// A numberRow is a worker number that is live, held by a worker or program, or blocked: its window, the time span in
// which the last owner may put the number into IDs, has not ended.
type numberRow struct {
	Number   int       `json:"number"`
	Instance string    `json:"instance"`
	Program  string    `json:"program,omitempty"` // host of the program; absent for a worker
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`      // when the number was acquired
	OffsetMs *int64    `json:"offset_ms,omitempty"` // the owner's clock minus that of JetStream
	Reported time.Time `json:"reported,omitzero"`   // when the owner last reported, by its own clock
	Until    time.Time `json:"until,omitzero"`      // the end of the window
}

func (*workersCmd) Run(s *session) error {
	return s.withJetStream(s.listNumbers)
}

// neverRan returns the error for a namespace whose buckets do not exist.
func (s *session) neverRan() error {
	return fmt.Errorf("no natsid has run on this NATS in namespace %s; check --nats and --namespace", s.namespace())
}

func (s *session) listNumbers(ctx context.Context, js jetstream.JetStream) error {
	registry := s.numbers(js)
	now, err := registry.Time(ctx) // JetStream's clock: this machine's may be wrong
	if errors.Is(err, buckets.ErrNoBucket) {
		return s.neverRan()
	}
	if err != nil {
		return err
	}
	beats, err := registry.Heartbeats(ctx)
	if err != nil {
		return err
	}
	records, err := registry.Records(ctx)
	if err != nil {
		return err
	}
	rows := []numberRow{}
	for _, number := range slices.Sorted(maps.Keys(records)) {
		r := records[number]
		row := numberRow{Number: number, Instance: r.Instance, Program: r.Program, State: "blocked",
			Reported: fleetview.Moment(r.Reported), Until: fleetview.Moment(r.Until)}
		if beat, live := beats[number]; live {
			row.State, row.OffsetMs = "live", new(beat.Offset().Milliseconds())
			row.Since, row.Reported = fleetview.Moment(beat.Since), fleetview.Moment(beat.Time)
		} else if r.Until <= now {
			continue
		}
		rows = append(rows, row)
	}
	return s.print(rows, func(out *sheet) {
		out.head("NUMBER\tINSTANCE\tPROGRAM ON\tSTATE\tSINCE\tOFFSET\tREPORTED\tUNTIL")
		for _, r := range rows {
			offset := ""
			if r.OffsetMs != nil {
				offset = fleetview.Signed(time.Duration(*r.OffsetMs) * time.Millisecond)
			}
			out.row(r.Number, r.Instance, r.Program, r.State, r.Since, offset, r.Reported, r.Until)
		}
	})
}

// numbers returns the registry of worker numbers. It never creates buckets: a worker would create them with other
// settings.
func (s *session) numbers(js jetstream.JetStream) *kvregistry.Registry {
	ns := s.namespace()
	return kvregistry.New(js, kvregistry.Config{
		History: wire.HistoryBucket(ns), Workers: wire.WorkerBucket(ns), Existing: true,
		WorkerSubject: func(w int) string { return wire.Worker(ns, w) },
	})
}
