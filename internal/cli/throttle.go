package cli

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
)

type throttleCmd struct {
	Rate throttleRate `arg:""`
	consent
}

func (*throttleCmd) help() help {
	return help{
		summary: "Slow the callers of each tag down, until it is switched off.",
		detail: `Each tag gives so many IDs per second, of all workers together; what is beyond is
answered 429, and says when to try again. All workers heed it within seconds, also
after a restart, until off. A lower --rate of "natsid tag update" still counts.
Snowflakes are not throttled.

Examples:
  natsid throttle 500
  natsid throttle off
  natsid tag update order --rate 100    # one tag alone`,
		values: map[string]string{"rate": "How many IDs per second each tag gives; or off."},
	}
}

// A throttleRate is IDs per second, or 0 for off.
type throttleRate int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *throttleRate) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 || n > wire.MaxRate {
		return fmt.Errorf("%q: want a number of IDs per second, 1 to %d, or off; of one tag, natsid tag update --rate",
			text, int64(wire.MaxRate))
	}
	*r = throttleRate(n)
	return nil
}

// Run implements the command.
func (c *throttleCmd) Run(s *session) error {
	t := wire.Throttle{Rate: (*int64)(&c.Rate)}
	text := func(out *sheet) { out.row("throttle", c.Rate) }
	return s.change(c.consent, "Change this for each tag?", t, text, func() error {
		return s.withNATS(func(nc *nats.Conn) error {
			now, err := request[wire.Throttle](s, nc, wire.ThrottleSubject(s.namespace()), t)
			if err != nil {
				return err
			}
			return s.print(now, text)
		})
	})
}

// String returns what [throttleRate.UnmarshalText] reads, with its unit.
func (r throttleRate) String() string {
	if r == 0 {
		return "off"
	}
	return fmt.Sprintf("%d IDs/s", r)
}
