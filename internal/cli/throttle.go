package cli

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
)

type throttleCmd struct {
	Rate limit `arg:""`
	consent
}

func (*throttleCmd) help() help {
	return help{
		summary: "Limit the IDs per second of every tag, until it is switched off.",
		detail: `Every tag then gives at most <rate> IDs per second, from all workers together. A
request above that is answered 429, with the time after which to try again. All
workers apply the limit within seconds, and after a restart, until "natsid throttle
off". A lower --rate of "natsid tag update" still holds. Snowflakes are not limited.

Examples:
  natsid throttle 500
  natsid throttle off
  natsid tag update order --rate 100    # one tag alone`,
		values: map[string]string{"rate": "How many IDs per second each tag gives; or off."},
	}
}

// A limit is a number of at least 1, or 0 for no limit, which is typed as "off".
type limit int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *limit) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*l = 0
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%q: want a number of at least 1, or off", text)
	}
	*l = limit(n)
	return nil
}

// String returns the text of which [limit.UnmarshalText] makes l.
func (l limit) String() string {
	if l == 0 {
		return "off"
	}
	return strconv.FormatInt(int64(l), 10)
}

func (c *throttleCmd) Run(s *session) error {
	t := wire.Throttle{Rate: (*int64)(&c.Rate)}
	if c.Rate > wire.MaxRate {
		return usage(fmt.Errorf("%v: want 1 to %d IDs per second, or off", c.Rate, int64(wire.MaxRate)))
	}
	text := func(out *sheet) { out.row("IDs/s of each tag", c.Rate) }
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
