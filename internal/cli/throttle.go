package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type throttleCmd struct {
	TagAndRate []string `arg:"" optional:"" name:"tag-and-rate"`
	All        bool
	Off        bool
}

func (*throttleCmd) help() help {
	return help{
		summary: "Slow callers of a tag down for a time, or show which tags are.",
		detail: `A throttled tag gives so many IDs per second, of all workers together; what is
beyond is answered 429, and says when to try again. With --all that holds for each
tag. All workers heed it within a second, also after a restart, until --off. It
comes on top of the limits of "natsid tag update"; the lowest counts. Snowflakes
are not throttled: see --max-rate of serve.

Without anything it shows what is throttled. --off alone ends all throttles.

Examples:
  natsid throttle order 1000
  natsid throttle --all 500
  natsid throttle order --off
  natsid throttle --off`,
		values: map[string]string{
			"tag-and-rate": "The tag, and how many IDs per second it gives; with --all the number alone.",
			"all":          "Throttle each tag.",
			"off":          "End the throttle of the tag, with --all that of each tag, or, alone, all.",
		},
	}
}

// request returns the request for the flags.
func (c *throttleCmd) request() (t subjects.Throttle, err error) {
	t.All, t.Off = c.All, c.Off
	rest := c.TagAndRate
	if !c.All && len(rest) > 0 {
		t.Tag, rest = rest[0], rest[1:]
		if err := checkTag(t.Tag); err != nil {
			return t, err
		}
	}
	if !c.Off && len(rest) > 0 {
		if t.Rate, err = strconv.ParseInt(rest[0], 10, 64); err != nil {
			return t, usage(fmt.Errorf("%q: want a number of IDs per second", rest[0]))
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return t, usage(fmt.Errorf("%q is not understood: give a tag and a number, or --all and a number", rest[0]))
	}
	if e, ok := errors.AsType[*subjects.Error](t.Check()); ok {
		return t, usage(errors.New(e.Text + ": such as `natsid throttle order 1000`"))
	}
	return t, nil
}

// Run implements the command.
func (c *throttleCmd) Run(s *session) error {
	t, err := c.request()
	if err != nil {
		return err
	}
	return ask(s, func(ctx context.Context, cl *client.Client) (subjects.Throttles, error) {
		return cl.Throttle(ctx, t)
	}, printThrottles)
}

func printThrottles(table io.Writer, now subjects.Throttles) {
	if now.All == 0 && len(now.Tags) == 0 {
		fmt.Fprintln(table, "Nothing is throttled.")
		return
	}
	fmt.Fprintln(table, "TAG\tIDS/S")
	if now.All > 0 {
		fmt.Fprintf(table, "(each)\t%d\n", now.All)
	}
	for _, tag := range slices.Sorted(maps.Keys(now.Tags)) {
		fmt.Fprintf(table, "%s\t%d\n", tag, now.Tags[tag])
	}
}
