package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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

STEP is the tag's own step; LOADS BY is the largest step of any worker's next
load. RECOMMENDED is the step with which a load lasts a worker 10 minutes at its
peak: give it to --step. LASTS is for how long the worker that runs out first has
IDs at its present speed, and so how long the store may be away. USED is how much
of the current ranges is used. ! marks tags whose last load failed.

With --stats --all, every tag is listed as the worker in column WORKER sees it; -
stands for what that worker does not have in memory. AHEAD is how far the mark
that guards the table is ahead of the row's max_id: 0 at rest.

HOLE is how many IDs a crash of one worker can waste at most, those of unanswered
requests not counted; --max-hole bounds it.

LIMITS are the tag's period and bounds; the limits of "natsid tag update",
in IDs a request and IDs per second of all workers together; and what "natsid
throttle" sets. A tag whose IDs rise over all
workers is strict; one that was loose, from a time on (UTC).

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
		return usage(errors.New("--all needs --stats; without --stats all tags are listed anyway"))
	}
	if c.Stats && !c.All {
		return ask(s, func(ctx context.Context, cl *client.Client) ([]subjects.WorkerStats, error) {
			return cl.Workers(ctx)
		}, printBusiest)
	}
	head, row := "TAG\tMAX_ID\tSTEP\tHOLE\tUPDATED\tLIMITS\tDESCRIPTION", tagRow
	if c.All {
		head, row = "TAG\tMAX_ID\tAHEAD\tWORKER\t"+useHead, useRow
	}
	return ask(s, func(ctx context.Context, cl *client.Client) ([]subjects.TagInfo, error) {
		return allTags(ctx, cl, c.All)
	}, func(table io.Writer, all []subjects.TagInfo) {
		fmt.Fprintln(table, head)
		for _, t := range all {
			fmt.Fprintln(table, row(t))
		}
	})
}

// allTags returns all tags, page by page.
func allTags(ctx context.Context, cl *client.Client, stats bool) ([]subjects.TagInfo, error) {
	all := []subjects.TagInfo{}
	for after := ""; ; after = all[len(all)-1].Tag {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after, Stats: stats})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

func tagRow(t subjects.TagInfo) string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%s\t%s", t.Tag, t.MaxID, t.Step, t.Hole,
		t.Updated.Format(time.DateTime), cmp.Or(limits(t), "-"), describe(t))
}

// limits returns the limits of a tag as text, "" if there are none.
func limits(t subjects.TagInfo) string {
	var all []string
	switch {
	case t.StrictFrom != nil:
		all = append(all, t.Order+" from "+t.StrictFrom.UTC().Format(time.DateTime))
	case t.Order != "":
		all = append(all, t.Order)
	}
	if t.Period != "" {
		all = append(all, strings.TrimSpace(t.Period+" "+t.Zone))
	}
	if t.Min > 0 {
		all = append(all, fmt.Sprintf("from %d", t.Min))
	}
	if t.Max > 0 {
		all = append(all, fmt.Sprintf("up to %d", t.Max))
	}
	if t.MaxBatch > 0 {
		all = append(all, fmt.Sprintf("%d a request", t.MaxBatch))
	}
	if t.Rate > 0 {
		all = append(all, fmt.Sprintf("%d/s", t.Rate))
	}
	if t.Throttle > 0 {
		all = append(all, fmt.Sprintf("throttled to %d/s", t.Throttle))
	}
	return strings.Join(all, ", ")
}

// describe returns a tag's description on one line, safe for a terminal.
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
