package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/ops/fleetview"
)

type tagStatsCmd struct{}

func (*tagStatsCmd) help() help {
	return help{
		summary: "Show how the busiest tags are used, summed over all workers.",
		detail: `Each worker is asked for its 20 busiest tags. IDS/S, LEFT (IDs in memory), WAITS
(requests that waited for a load) and ERRORS (loads that failed) are sums over the
workers that named the tag; WORKERS is how many did, of how many that answered.

STEP is the tag's own step; LOADS BY is the largest step of any worker's next
load. RECOMMENDED is the step with which a load lasts a worker 10 minutes at its
peak: give it to --step. LASTS is for how long the worker that runs out first has
IDs at its present speed, and so how long the store may be away. USED is how much
of the current ranges is used. ! marks tags whose last load failed.`,
	}
}

func (*tagStatsCmd) Run(s *session) error { return s.withJetStream(s.listBusiest) }

func (s *session) listBusiest(ctx context.Context, js jetstream.JetStream) error {
	snapshot, err := s.look(ctx, js)
	if err != nil {
		return err
	}
	all := snapshot.Statistics()
	if len(all) == 0 {
		return cmp.Or(s.missing(), errNoWorker)
	}
	return s.print(all, func(out *sheet) {
		out.head("TAG\tWORKERS\tSTEP\tLOADS BY\tRECOMMENDED\tIDS/S\tLEFT\tLASTS\tUSED\tWAITS\tERRORS")
		for _, u := range snapshot.Busiest() {
			used, trouble, recommended := "", "", ""
			if part, ok := u.Taken(); ok {
				used = fmt.Sprintf("%.0f%%", 100*part)
			}
			if u.Failing {
				trouble = "!"
			}
			if u.RecommendedStep > 0 {
				recommended = fmt.Sprint(u.RecommendedStep)
			}
			out.row(u.Tag, fmt.Sprintf("%d/%d", u.Workers, len(all)), u.Step, u.NextStep, recommended,
				fleetview.PerSecond(float64(u.IDsPerSecond)), u.Left, fleetview.Seconds(u.SecondsLeft), used, u.Waits,
				fmt.Sprint(u.Errors, trouble))
		}
	})
}
