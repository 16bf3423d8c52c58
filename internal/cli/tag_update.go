package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

type tagUpdateCmd struct {
	Tag     string  `arg:""`
	Step    *int64  `placeholder:"N"`
	Desc    *string `placeholder:"TEXT"`
	NextID  *int64  `placeholder:"ID" xor:"raise"`
	RaiseBy *int64  `placeholder:"N" xor:"raise"`
	Max     *limit  `placeholder:"N"`
	MaxHole *limit  `placeholder:"N"`
	Force   bool

	MaxBatch *limit `placeholder:"N"`
	Rate     *limit `placeholder:"N"`
	consent
}

func (*tagUpdateCmd) help() help {
	return help{
		summary: "Change a tag's step, description or limits, or raise its next ID.",
		detail: `What is not given stays as it is. After --next-id or --raise-by every worker
discards the IDs that it has loaded below the new one: within milliseconds or, if it
is cut off from NATS then, at its next load or poll. If a tag is undecided after a
resume, --next-id says where it continues: above every ID that it ever had.

--max-batch and --rate limit what callers get of the tag; off ends a limit. Workers
apply them at once or, if the message does not reach them, at their next load or
poll. A request above --rate is answered 429, with the time after which to try
again. To limit every tag for a time, use "natsid throttle".

<tag> may be a pattern with * and ?, as for files; the command then asks first.

Examples:
  natsid tag update order --step 10000 --desc 'orders of Europe'
  natsid tag update order --next-id 5000001    # start above IDs that are in use
  natsid tag update order --raise-by 1000000   # after a restore, if in doubt
  natsid tag update order --max-batch 1000 --rate 50000
  natsid tag update 'so-*' --rate 100`,
		values: map[string]string{
			"tag":       "The tag, or a pattern, such as 'so-*'.",
			"step":      "How many IDs a worker loads at once, from the next load on.",
			"desc":      "Description, for people; may be empty.",
			"next-id":   "The next ID: no ID below it is issued any more. It only rises.",
			"raise-by":  "How many IDs to skip above those that workers have loaded.",
			"max-batch": "The most IDs that one request gets, up to 1000000; or off.",
			"rate": "The most IDs per second, of all workers together, up to 1000000000000; or off. One request may " +
				"take the IDs of a minute at once; requests after it are then refused for as long.",
			"max":   "The highest number; or off.",
			"force": "Allow to skip more than 1099511627776 (2^40) IDs at once. Skipped IDs are never issued.",
		},
	}
}

func (c *tagUpdateCmd) Run(s *session) error {
	u := wire.TagUpdate{
		Tag: c.Tag, Step: c.Step, Description: c.Desc,
		NextID: (*subjects.ID)(c.NextID), RaiseBy: (*subjects.ID)(c.RaiseBy), Force: c.Force,
		Max: (*subjects.ID)(c.Max), MaxHole: (*subjects.ID)(c.MaxHole),
		Rate: (*int64)(c.Rate),
	}
	if c.MaxBatch != nil {
		u.MaxBatch = new(int(*c.MaxBatch))
	}
	isPattern := strings.ContainsAny(c.Tag, "*?")
	if isPattern {
		u.Tag = "any" // any valid name, so that Check goes on to the other fields
	}
	if e, ok := errors.AsType[*subjects.Error](u.Check()); ok {
		return usage(fmt.Errorf("tag %q: %s", c.Tag, inFlags(e.Text)))
	}
	update := func(nc *nats.Conn, tag string) error {
		u.Tag = tag
		return s.tell(nc, s.namespace().TagUpdate(), u)
	}
	if isPattern || c.DryRun {
		return s.changeTags(c.consent, c.Tag, "Change", update)
	}
	return s.withNATS(func(nc *nats.Conn) error { return update(nc, c.Tag) })
}

// fields matches the JSON fields that refusals of changes name; "next_id is" stands for the tag's next ID, not the
// field.
var fields = regexp.MustCompile(
	`next_id is|\b(step|start|description|min|max|rate|force)\b|next_id|max_(hole|batch)|raise_by|or 0 for no limit`)

// inFlags returns the text of a worker's refusal with the command's flags in place of JSON fields.
func inFlags(text string) string {
	return fields.ReplaceAllStringFunc(text, func(field string) string {
		others := map[string]string{
			"next_id is": "the next ID is", "description": "--desc", "or 0 for no limit": "or off",
		}
		return cmp.Or(others[field], "--"+strings.ReplaceAll(field, "_", "-"))
	})
}
