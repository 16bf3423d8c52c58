package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type tagListCmd struct {
	Stats bool
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

With --json the marks in JetStream are part of the list, also without a worker.

HOLE is how many IDs a crash of one worker can waste at most, those of unanswered
requests not counted; --max-hole bounds it.

LIMITS are the tag's period and bounds; the limits of "natsid tag update",
in IDs a request and IDs per second of all workers together; and what "natsid
throttle" sets. A tag whose IDs rise over all workers is strict.

Examples:
  natsid tag list
  natsid tag list --stats`,
		values: map[string]string{
			"stats": "How the busiest tags are used, summed over all workers.",
		},
	}
}

// Run implements the command.
func (c *tagListCmd) Run(s *session) error {
	if c.Stats {
		return s.withJetStream(s.listBusiest)
	}
	return s.withJetStream(s.listTags)
}

func (s *session) listTags(_ context.Context, js jetstream.JetStream) error {
	all, err := allTags(s.ctx, s.clientOn(js.Conn()))
	if s.json {
		all, err = s.withMarks(js, all, err)
	}
	if err != nil {
		return err
	}
	return s.print(all, func(table io.Writer) {
		fmt.Fprintln(table, "TAG\tMAX_ID\tSTEP\tHOLE\tUPDATED\tLIMITS\tDESCRIPTION")
		for _, t := range all {
			fmt.Fprintln(table, tagRow(t))
		}
	})
}

// allTags returns all tags, page by page.
func allTags(ctx context.Context, cl *client.Client) ([]subjects.TagInfo, error) {
	all := []subjects.TagInfo{}
	for after := ""; ; after = all[len(all)-1].Tag {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

// withMarks returns the tags with their marks in JetStream. failed is why workers did not list all tags, or nil; it is
// returned if the marks cannot be read either.
//
// Law: no tag is below its mark, and none is missing that has one: rows of MySQL may be made of the list.
func (s *session) withMarks(
	js jetstream.JetStream, all []subjects.TagInfo, failed error,
) ([]subjects.TagInfo, error) {
	ctx, cancel := s.soon()
	defer cancel()
	r, err := inspect(ctx, onJetStream(js), s.namespace())
	if err != nil {
		return nil, cmp.Or(failed, err)
	}
	for i, t := range all {
		all[i].MaxID = max(t.MaxID, subjects.ID(r.Marks[t.Tag].Mark))
		delete(r.Marks, t.Tag)
	}
	for tag, p := range r.Marks {
		t := subjects.TagInfo{Tag: tag, MaxID: subjects.ID(p.Mark), Updated: p.Written, Disabled: p.Disabled}
		if p.Undecided {
			t.Unservable = "undecided since a resume"
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b subjects.TagInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return all, nil
}

func tagRow(t subjects.TagInfo) string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%s\t%s", t.Tag, t.MaxID, t.Step, t.Hole,
		t.Updated.Format(time.DateTime), cmp.Or(limits(t), "-"), describe(t))
}

// limits returns the limits of a tag as text, "" if there are none.
func limits(t subjects.TagInfo) string {
	var all []string
	if t.Strict {
		all = append(all, "strict")
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
