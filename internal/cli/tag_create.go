package cli

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

type tagCreateCmd struct {
	Tags    []tagName `arg:"" name:"tag"`
	Step    int64     `default:"${default_step}"`
	Start   *int64    `placeholder:"ID"`
	Desc    string    `placeholder:"TEXT"`
	Daily   bool      `xor:"period"`
	Monthly bool      `xor:"period"`
	Yearly  bool      `xor:"period"`
	Zone    string    `placeholder:"ZONE"`
	Min     int64     `placeholder:"N"`
	Max     limit     `placeholder:"N"`
	MaxHole limit     `placeholder:"N"`
	Strict  bool
}

func (*tagCreateCmd) help() help {
	return help{
		summary: "Create tags, or revive deleted ones.",
		detail: `All tags get the same settings. If one cannot be created, those before it are, and
those after it are not.

The numbers of a daily, monthly or yearly tag begin again with each period. Its IDs
carry the date, such as 2026112500000042 for number 42 of a day, so that none
repeats, and no ID of a past day is issued.

Examples:
  natsid tag create order
  natsid tag create invoice --strict
  natsid tag create so --daily --zone Asia/Shanghai --max 999999
  natsid tag create ticket --min 100000 --max 999999 --max-hole 100
  natsid tag create order.eu --step 10000 --start 5000001 --desc 'orders of Europe'
  xargs natsid tag create <names.txt`,
		values: map[string]string{
			"step": "How many IDs a worker loads at once. With 600 times the peak of IDs per second " +
				"a worker can do without the store for ten minutes.",
			"start": "The first ID: above all IDs in use elsewhere. The default is 1, or after a resume an ID above " +
				"all that the tag can have had.",
			"desc":    "Description, for people.",
			"daily":   "Begin the numbers again each day.",
			"monthly": "Begin the numbers again each month.",
			"yearly":  "Begin the numbers again each year.",
			"zone": "Time zone in which a period begins: a name such as Asia/Shanghai, or an offset such as " +
				"+08:00. The default is UTC.",
			"min": "The lowest number, in each period if there is one. The default is 1.",
			"max": "The highest number; after it, requests are refused. The default is off.",
			"strict": "Issue rising IDs over all workers: a request that is sent after the answer to another has " +
				"arrived gets higher IDs. The order of a tag never changes.",
		},
	}
}

func (c *tagCreateCmd) Run(s *session) error {
	var start int64 // 0, which the request leaves out, means the default
	if c.Start != nil {
		start = *c.Start
	}
	if c.Step < 1 || c.Start != nil && start < 1 {
		return usage(fmt.Errorf("step %d and start %d, want at least 1", c.Step, start))
	}
	t := subjects.TagCreate{Step: c.Step, Start: subjects.ID(start), Description: c.Desc,
		Strict: c.Strict, Min: subjects.ID(c.Min), Max: subjects.ID(c.Max),
		MaxHole: subjects.ID(c.MaxHole), Zone: c.Zone}
	for period, isGiven := range map[string]bool{"daily": c.Daily, "monthly": c.Monthly, "yearly": c.Yearly} {
		if isGiven {
			t.Period = period
		}
	}
	return s.withNATS(func(nc *nats.Conn) error {
		for i, tag := range c.Tags {
			t.Tag = string(tag)
			if err := s.tell(nc, s.namespace().TagCreate(), t); err != nil && len(c.Tags) > 1 {
				return fmt.Errorf("%w; the %d before tag %s are made, those after it are not: repeat with the rest",
					err, i, tag)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}
