package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagListCmd struct {
	Stats bool
	All   bool
}

func (*tagListCmd) help() help {
	return help{
		summary: "List the tags.",
		detail: `With --stats each worker is asked for its 20 busiest tags. A tag's IDS/S, LEFT
(IDs in memory), WAITS (requests that waited for a load) and ERRORS (loads that
failed) are sums over the workers that named it; WORKERS is how many did, of how
many that answered.

STEP is the tag's own step, LOADS BY the largest that traffic has made of it.
RECOMMENDED is the step with which a load lasts a worker 10 minutes at its peak:
give it to --step. LASTS is how long the IDs of the worker that runs out first
last at its present speed, and so how long the store may be away. USED is how
much of the current ranges is used. ! marks loads that fail at present.

With --all too, every tag is listed as one worker sees it, named by WORKER; -
stands for tags that this worker does not have in memory. AHEAD is how far the
mark that guards the table is ahead of the row's max_id: 0 at rest.

Examples:
  natsid tag list
  natsid tag list --stats
  natsid tag list --stats --all`,
		values: map[string]string{
			"stats": "How the busiest tags are used, summed over all workers.",
			"all":   "With --stats: every tag, as one worker sees it.",
		},
	}
}

// Run implements the command.
func (c *tagListCmd) Run(s *session) error {
	if c.All && !c.Stats {
		return usage(errors.New("--all goes with --stats; without it all tags are listed anyway"))
	}
	return s.withClient(func(ctx context.Context, cl *client.Client) error {
		switch {
		case c.All:
			return listTags(ctx, s.stdout, cl, true, "TAG\tMAX_ID\tAHEAD\tWORKER\t"+statsHead, statsRow)
		case c.Stats:
			workers, err := cl.Workers(ctx)
			if err != nil {
				return err
			}
			return printBusiest(s.stdout, workers)
		}
		return listTags(ctx, s.stdout, cl, false, "TAG\tMAX_ID\tSTEP\tUPDATED\tDESCRIPTION", func(t subjects.TagInfo) string {
			return fmt.Sprintf("%s\t%d\t%d\t%s\t%s", t.Tag, t.MaxID, t.Step, t.Updated.Format(time.DateTime), describe(t))
		})
	})
}

// listTags prints all tags, page by page: columns under a head.
func listTags(ctx context.Context, to io.Writer, cl *client.Client, stats bool, head string, row func(subjects.TagInfo) string) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for after := ""; ; {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after, Stats: stats})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return table.Flush()
		}
		for _, t := range page {
			fmt.Fprintln(table, row(t))
		}
		after = page[len(page)-1].Tag
	}
}

// statsHead names what [tagUse.String] shows.
const statsHead = "STEP\tLOADS BY\tRECOMMENDED\tIDS/S\tLEFT\tLASTS\tUSED\tWAITS\tERRORS"

func statsRow(t subjects.TagInfo) string {
	ahead, worker, use := "-", "-", strings.Repeat("\t-", 8)[1:]
	if t.MarkAhead != nil {
		ahead = fmt.Sprint(int64(*t.MarkAhead))
	}
	if t.Stats != nil {
		u := newUse(t.Tag)
		u.add(*t.Stats)
		worker, use = t.Stats.Worker, u.rest()
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%d\t%s", t.Tag, t.MaxID, ahead, worker, t.Step, use)
}

// printBusiest prints who answered, and the sums of what they told.
func printBusiest(to io.Writer, workers []subjects.WorkerStats) error {
	var names []string
	uses := map[string]*tagUse{}
	for _, w := range workers {
		names = append(names, fmt.Sprintf("%s (%d tags, %s IDs/s)", w.Instance, w.Tags, rate(w.IDsPerSecond)))
		for _, t := range w.Busiest {
			if uses[t.Tag] == nil {
				uses[t.Tag] = newUse(t.Tag)
			}
			uses[t.Tag].add(t)
		}
	}
	fmt.Fprintf(to, "The %d busiest tags of each of %d workers: %s.\n", subjects.MaxBusiest, len(workers), strings.Join(names, ", "))
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TAG\tWORKERS\t"+statsHead)
	for _, u := range inOrder(uses) {
		fmt.Fprintf(table, "%s\t%d/%d\t%d\t%s\n", u.tag, u.workers, len(workers), u.step, u.rest())
	}
	return table.Flush()
}

// inOrder returns the busiest first.
func inOrder(uses map[string]*tagUse) (all []*tagUse) {
	for _, u := range uses {
		all = append(all, u)
	}
	slices.SortFunc(all, func(x, y *tagUse) int { return cmp.Or(cmp.Compare(y.speed, x.speed), cmp.Compare(x.tag, y.tag)) })
	return all
}

// A tagUse is what some workers tell of one tag, together.
type tagUse struct {
	tag                     string
	workers                 int
	step, next, recommended int64 // the most of any
	speed                   subjects.Fraction
	left, waits, errors     int64
	lasts                   subjects.Fraction // the least of any
	used, size              float64           // IDs of the current ranges
	failing                 bool
}

func newUse(tag string) *tagUse { return &tagUse{tag: tag, lasts: subjects.Fraction(math.Inf(1))} }

func (u *tagUse) add(t subjects.TagStats) {
	u.workers++
	u.step, u.next, u.recommended = max(u.step, t.Step), max(u.next, t.NextStep), max(u.recommended, t.RecommendedStep)
	u.speed += t.IDsPerSecond
	u.left, u.waits, u.errors = u.left+t.Left, u.waits+t.Waits, u.errors+t.Errors
	u.lasts = min(u.lasts, t.SecondsLeft)
	u.failing = u.failing || t.Failing
	if len(t.Ranges) > 0 { // the first is the current one
		r := t.Ranges[0]
		u.used += float64(r.Next - r.First)
		u.size += float64(r.Last-r.First) + 1
	}
}

// rest returns the columns after STEP.
func (u *tagUse) rest() string {
	used, trouble, recommended := "-", "", "-"
	if u.size > 0 {
		used = fmt.Sprintf("%.0f%%", 100*u.used/u.size)
	}
	if u.failing {
		trouble = "!"
	}
	if u.recommended > 0 {
		recommended = fmt.Sprint(u.recommended)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s\t%d\t%d%s", u.next, recommended, rate(u.speed), u.left, lasts(u.lasts), used, u.waits, u.errors, trouble)
}

// rate returns a speed with as many digits as tell something.
func rate(f subjects.Fraction) string {
	if f < 100 {
		return fmt.Sprintf("%.1f", float64(f))
	}
	return fmt.Sprintf("%.0f", float64(f))
}

// lasts returns a time in its two largest units: 15m20s, 3h5m, 12d.
func lasts(f subjects.Fraction) string {
	const day = 24 * 3600
	switch s := float64(f); {
	case s < 10:
		return fmt.Sprintf("%.1fs", s)
	case s < 3600:
		return (time.Duration(s) * time.Second).String()
	case s < 2*day:
		return strings.TrimSuffix((time.Duration(s/60) * time.Minute).String(), "0s")
	case s < 1000*day:
		return fmt.Sprintf("%.0fd", s/day)
	}
	return "-"
}

// describe returns a tag's description on one line, fit for a terminal.
func describe(t subjects.TagInfo) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, t.Description)
	text = strings.Join(strings.Fields(text), " ")
	if t.Unservable != "" {
		text = strings.TrimSpace("(cannot be served: " + t.Unservable + ") " + text)
	}
	if t.Disabled {
		text = strings.TrimSpace("(deleted) " + text)
	}
	return text
}
