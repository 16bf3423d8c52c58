package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

type tagUpdateCmd struct {
	Tag     string  `arg:""`
	Step    *int64  `placeholder:"N"`
	Desc    *string `placeholder:"TEXT"`
	MaxID   *int64  `placeholder:"ID" xor:"raise"`
	RaiseBy *int64  `placeholder:"N" xor:"raise"`
	Max     *int64  `placeholder:"N"`
	MaxHole *int64  `placeholder:"N"`
	Force   bool

	MaxBatch *int   `placeholder:"N"`
	Rate     *int64 `placeholder:"N"`
	Yes      bool   `short:"y"`
}

func (*tagUpdateCmd) help() help {
	return help{
		summary: "Change a tag's step, description or limits, or raise its next ID.",
		detail: `What is not given stays as it is. After --max-id or --raise-by every worker
discards what it has loaded below the new ID: within milliseconds, or, if it is
cut off from NATS at that moment, at its next load or poll. --max-id also says where
a tag goes on that is undecided since a resume: above every ID that it ever had.

--max-batch and --rate limit what callers get of the tag; 0 ends a limit. Workers
heed them at once, or, if they miss the news, at their next load or poll. A request
beyond --rate is answered 429, and says when to try again. With these two alone, TAG
may be a pattern, as a shell has of files; then the command asks. To slow the
callers of each tag down for a time, use "natsid throttle".

Examples:
  natsid tag update order --step 10000 --desc 'orders of Europe'
  natsid tag update order --max-id 5000001     # start above IDs that are in use
  natsid tag update order --raise-by 1000000   # after a restore, if in doubt
  natsid tag update order --max-batch 1000 --rate 50000
  natsid tag update 'so-*' --rate 100`,
		values: map[string]string{
			"tag":       "The tag; with --rate and --max-batch also a pattern, such as 'so-*'.",
			"step":      "How many IDs a worker loads at once, from the next load on.",
			"desc":      "Description, for people; may be empty.",
			"max-id":    "The next ID: no ID below it is issued any more. It only rises.",
			"raise-by":  "How many IDs to skip above those that workers have loaded.",
			"max-batch": "The most IDs that one request gets, up to 1000000.",
			"rate":      "The most IDs per second, of all workers together, up to 1000000000000.",
			"yes":       "With a pattern: do not ask.",
			"max":       "The highest number; 0 for as many as there are.",
			"max-hole":  maxHoleHelp,
			"force":     "Skip more than 1099511627776 (2^40) IDs at once, which are lost for good.",
		},
	}
}

// Run implements the command.
func (c *tagUpdateCmd) Run(s *session) error {
	u := wire.TagUpdate{
		Tag: c.Tag, Step: c.Step, Description: c.Desc,
		MaxID: (*subjects.ID)(c.MaxID), RaiseBy: (*subjects.ID)(c.RaiseBy), Force: c.Force,
		Max: (*subjects.ID)(c.Max), MaxHole: (*subjects.ID)(c.MaxHole),
		MaxBatch: c.MaxBatch, Rate: c.Rate,
	}
	isLimit := u == wire.TagUpdate{Tag: u.Tag, MaxBatch: u.MaxBatch, Rate: u.Rate}
	isPattern := isLimit && u.ChangesLimit() && strings.ContainsAny(c.Tag, "*?")
	if isPattern {
		u.Tag = "any" // to check the rest
	}
	if e, ok := errors.AsType[*subjects.Error](u.Check()); ok {
		return usage(fmt.Errorf("tag %q: %s", c.Tag, e.Text))
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	tags := []string{c.Tag}
	if isPattern {
		tags, err = c.matching(s, nc)
	}
	for i := 0; i < len(tags) && err == nil; i++ {
		u.Tag = tags[i]
		err = c.update(s, nc, u)
	}
	return err
}

// update changes a tag, and prints it.
func (c *tagUpdateCmd) update(s *session, nc *nats.Conn, u wire.TagUpdate) error {
	t, err := request[subjects.TagInfo](s, nc, s.namespace().TagUpdate(), u)
	if err != nil {
		return err
	}
	return s.print(t, func(out io.Writer) {
		if u.ChangesLimit() {
			fmt.Fprintf(out, "%s: %s\n", t.Tag, cmp.Or(limits(t), "no limits"))
			return
		}
		fmt.Fprintf(out, "%s: next unreserved ID %d, step %d\n", t.Tag, t.MaxID, t.Step)
		if u.MaxHole != nil {
			printMaxHole(out, t)
		}
	})
}

// matching returns the tags that match a pattern, if a user agrees.
func (c *tagUpdateCmd) matching(s *session, nc *nats.Conn) (tags []string, err error) {
	all, err := allTags(s.ctx, s.clientOn(nc))
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if matches, _ := path.Match(c.Tag, t.Tag); matches && !t.Disabled { // a malformed pattern matches none
			tags = append(tags, t.Tag)
		}
	}
	if len(tags) == 0 {
		return nil, fmt.Errorf("no tag matches %s: check the pattern", c.Tag)
	}
	return tags, s.agree(c.Yes, fmt.Sprintf("Limit %s, %s to %s?",
		numberOf(len(tags), "tag"), tags[0], tags[len(tags)-1]))
}
