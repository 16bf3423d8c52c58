package cli

import (
	"errors"
	"fmt"
	"io"

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
	Max     int64     `placeholder:"N"`
	MaxHole int64     `placeholder:"N"`
	Cycle   bool      `hidden:""`
	Strict  bool
}

func (*tagCreateCmd) help() help {
	return help{
		summary: "Create tags, or revive deleted ones.",
		detail: `Of several tags, all alike, those before the one that fails are made.

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
			"tag": tagForm,
			"step": "How many IDs a worker loads at once. With 600 times the peak of IDs per second " +
				"a worker can do without the store for ten minutes.",
			"start": "The first ID, above all in use elsewhere. Without it a tag begins at 1, or after a resume " +
				"above all that it can have had.",
			"desc":    "Description, for people.",
			"daily":   "Let the numbers begin again with each day.",
			"monthly": "Let them begin again with each month.",
			"yearly":  "Let them begin again with each year.",
			"zone": "Where the day begins: a name such as Asia/Shanghai, or a difference such as +08:00; " +
				"UTC if absent.",
			"min":      "The lowest number; with --daily, of each day. 1 if absent.",
			"max":      "The highest number; then requests are refused. 0 for as many as there are.",
			"max-hole": maxHoleHelp,
			"cycle":    "Not supported.",
			"strict": "Let the IDs rise over all workers: a request that is sent after the answer to another has " +
				"arrived gets higher ones. The order of a tag never changes.",
		},
	}
}

// Run implements the command.
func (c *tagCreateCmd) Run(s *session) error {
	if c.Cycle {
		return usage(errors.New("natsid never repeats an ID, so there is no --cycle: " +
			"with --daily, numbers begin again and the ID carries the day"))
	}
	var start int64 // 0 on the wire is not said
	if c.Start != nil {
		start = *c.Start
	}
	if c.Step < 1 || c.Start != nil && start < 1 {
		return usage(fmt.Errorf("step %d and start %d, want at least 1", c.Step, start))
	}
	t := subjects.TagCreate{Step: c.Step, Start: subjects.ID(start), Description: c.Desc,
		Strict: c.Strict, Min: subjects.ID(c.Min), Max: subjects.ID(c.Max),
		MaxHole: subjects.ID(c.MaxHole), Period: c.period(), Zone: c.Zone}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for i, tag := range c.Tags {
		t.Tag = string(tag)
		if err := create(s, nc, t); err != nil && len(c.Tags) > 1 {
			return fmt.Errorf("%w; the %d before tag %s are made, those after it are not: repeat with the rest",
				err, i, tag)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// create creates a tag, and prints it.
func create(s *session, nc *nats.Conn, t subjects.TagCreate) error {
	created, err := request[subjects.TagInfo](s, nc, s.namespace().TagCreate(), t)
	if err != nil {
		return err
	}
	return s.print(created, func(out io.Writer) {
		next := fmt.Sprintf("next ID %d", max(created.MaxID, created.Min))
		if created.Period != "" {
			next = created.Period + " numbers"
		}
		fmt.Fprintf(out, "%s: %s, step %d\n", created.Tag, next, created.Step)
		printMaxHole(out, created)
	})
}

func (c *tagCreateCmd) period() string {
	switch {
	case c.Daily:
		return "daily"
	case c.Monthly:
		return "monthly"
	case c.Yearly:
		return "yearly"
	}
	return ""
}

const maxHoleHelp = "The most numbers that a crash of one worker can waste, those of unanswered requests not " +
	"counted; 0 for no bound. Workers then load fewer at once, and more often."

// printMaxHole says what a bound on holes costs.
func printMaxHole(out io.Writer, t subjects.TagInfo) {
	if n := int64(t.MaxHole); n > 0 {
		loads := max(1, n/2)
		fmt.Fprintf(out, "a crash of a worker wastes at most %d numbers; it loads once for each %d, so at 1000 IDs/s "+
			"%.3g times a second\n", n, loads, 1000/float64(loads))
	}
}
