package cli

import (
	"context"

	"github.com/natsid/natsid/client"
)

type getSnowflakeCmd struct{ count }

func (*getSnowflakeCmd) help() help {
	return help{
		summary: "Get snowflakes.",
		detail: `Example:
  natsid get snowflake -n 3`,
		values: map[string]string{"n": countHelp},
	}
}

// Run implements the command.
func (c *getSnowflakeCmd) Run(s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.withClient(func(ctx context.Context, cl *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, getWithin)
		defer cancel()
		return s.printRuns(cl.Snowflake().NextN(ctx, c.N))
	})
}
