package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

// useHead names the columns of a tag's step and of [useColumns].
const useHead = "STEP\tLOADS BY\tRECOMMENDED\tIDS/S\tLEFT\tLASTS\tUSED\tWAITS\tERRORS"

// listBusiest prints the statistics of all workers.
func (s *session) listBusiest(ctx context.Context, js jetstream.JetStream) error {
	snapshot, err := s.look(ctx, js)
	if err != nil {
		return err
	}
	all := snapshot.Statistics()
	if len(all) == 0 {
		return cmp.Or(s.missing(), errNoWorker)
	}
	return s.print(all, func(out io.Writer) { printBusiest(out, all) })
}

// printBusiest prints which workers answered, and the sums of their figures.
func printBusiest(out io.Writer, workers []wire.WorkerStats) {
	var names []string
	for _, w := range workers {
		names = append(names,
			fmt.Sprintf("%s (%s, %s IDs/s)", w.Instance, numberOf(w.Tags, "tag"), rate(w.IDsPerSecond)))
	}
	of := numberOf(len(workers), "worker")
	if len(workers) != 1 {
		of = "each of " + of
	}
	fmt.Fprintf(out, "The %d busiest tags of %s: %s.\n", wire.MaxBusiest, of, strings.Join(names, ", "))
	fmt.Fprintln(out, "TAG\tWORKERS\t"+useHead)
	for _, u := range fleetview.Busiest(workers) {
		fmt.Fprintf(out, "%s\t%d/%d\t%d\t%s\n", u.Tag, u.Workers, len(workers), u.Step, useColumns(u))
	}
}

// useColumns returns the columns after STEP.
func useColumns(u fleetview.Use) string {
	used, trouble, recommended := "-", "", "-"
	if part, ok := u.Taken(); ok {
		used = fmt.Sprintf("%.0f%%", 100*part)
	}
	if u.Failing {
		trouble = "!"
	}
	if u.RecommendedStep > 0 {
		recommended = fmt.Sprint(u.RecommendedStep)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s\t%d\t%d%s", u.NextStep, recommended, rate(u.IDsPerSecond), u.Left,
		fleetview.Seconds(u.SecondsLeft), used, u.Waits, u.Errors, trouble)
}

func rate(f wire.Fraction) string { return fleetview.PerSecond(float64(f)) }
