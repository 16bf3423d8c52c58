package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

type getCmd struct {
	Segment   getSegmentCmd   `cmd:""`
	Snowflake getSnowflakeCmd `cmd:""`
}

func (*getCmd) help() help { return help{summary: "Get IDs."} }

type getSegmentCmd struct {
	Tag tagName `arg:""`
	textFlags
	count
}

func (*getSegmentCmd) help() help {
	return help{
		summary: "Get IDs of a tag.",
		detail: `Examples:
  natsid get segment order           # 1001
  natsid get segment order -n 100    # 1002-1101
  natsid get segment so --format 'SO-{date:yyyyMMdd}-{id:6}-{check}'
  natsid get segment order --format 'NO-{mask:k1:9}' --key k1=k1.key`,
		values: map[string]string{
			"format": "Print each ID in this format, one a line: see natsid read --help. In a radix above 36 two IDs " +
				"may differ in case alone.",
		},
	}
}

func (c *getSegmentCmd) Run(s *session) error {
	if c.Format == "" && len(c.Key) == 0 {
		return c.get(s, string(c.Tag), 0, nil)
	}
	f, err := c.textFlags.parse(string(c.Tag))
	if err != nil {
		return err
	}
	return c.get(s, string(c.Tag), 0, f)
}

type getSnowflakeCmd struct {
	Business int64 `placeholder:"N"`
	count
}

func (*getSnowflakeCmd) help() help {
	return help{
		summary: "Get snowflakes.",
		detail: `Examples:
  natsid get snowflake -n 3
  natsid get snowflake --business 2`,
		values: map[string]string{
			"business": "Number of the business, if the layout has a field for it. The default is 0.",
		},
	}
}

func (c *getSnowflakeCmd) Run(s *session) error {
	return c.get(s, "", c.Business, nil)
}

// count is the flag -n of commands that get IDs.
type count struct {
	N int `short:"n" default:"1"`
}

// getWithin is how long the command waits for IDs: a person at a terminal waits for it.
const getWithin = 2 * time.Second

// get prints IDs of a tag, or snowflakes if tag is "": as runs, first-last, if f is nil, otherwise each in the
// format f.
func (c count) get(s *session, tag string, business int64, f *format.Format) error {
	if c.N < 1 || c.N > client.MaxIDs {
		return usage(fmt.Errorf("-n %d: want 1 to %d", c.N, client.MaxIDs))
	}
	return s.withNATS(func(nc *nats.Conn) error {
		ctx, cancel := context.WithTimeout(s.ctx, getWithin)
		defer cancel()
		handle, err := s.handle(nc, client.Config{}, tag, business)
		if err != nil {
			return err
		}
		runs, err := handle.NextN(ctx, c.N)
		if err != nil {
			return err
		}
		got := idsJSON{Runs: joined(runs)}
		for id := range runs.All() {
			if f == nil {
				break
			}
			text, err := f.Format(id)
			if err != nil {
				return err
			}
			got.Texts = append(got.Texts, text)
		}
		return s.print(got, func(out *sheet) {
			for _, text := range got.Texts {
				fmt.Fprintln(out, text)
			}
			for _, r := range got.Runs {
				if f == nil {
					fmt.Fprintln(out, subjects.Run(r))
				}
			}
		})
	})
}

// joined returns the runs, and merges those that follow on one another: NextN may need several requests.
func joined(runs subjects.Runs) (all []runJSON) {
	for _, r := range runs {
		if n := len(all); n > 0 && all[n-1].Last+1 == r.First {
			all[n-1].Last = r.Last
			continue
		}
		all = append(all, runJSON(r))
	}
	return all
}

// idsJSON is the output of commands that get IDs.
type idsJSON struct {
	Runs  []runJSON `json:"runs"`
	Texts []string  `json:"texts,omitempty"` // with --format
}

type runJSON struct {
	First subjects.ID `json:"first"`
	Last  subjects.ID `json:"last"`
}
