package testbed

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// Control is the subject of requests whose body is an order in words: see [Cluster.Do].
const Control = "natsid.test"

// orders has an example of each order.
const orders = "stall 2s, refuse 503 for 1s, drop replies for 1s, resume, restart, skip 1000000"

// lasting matches the orders of faults with a duration. Its groups are the fault, the code, and the duration.
var lasting = regexp.MustCompile(`^(stall|drop replies|refuse (\S+))(?:(?: for)? (\S+))?$`)

// Do obeys an order. The error for an unknown order is a [*subjects.Error] of code 400.
func (c *Cluster) Do(order string) error {
	order = strings.Join(strings.Fields(order), " ")
	if m := lasting.FindStringSubmatch(order); m != nil {
		return c.last(m[1], m[2], m[3])
	}
	n, isSkip := strings.CutPrefix(order, "skip ")
	switch {
	case order == "resume":
		c.Resume()
		return nil
	case order == "restart":
		return c.Restart()
	case isSkip:
		by, err := strconv.ParseInt(n, 10, 64)
		if err != nil || by < 1 {
			return subjects.Errorf(subjects.BadRequest, "%+q is no number of IDs; want one such as 1000000", n)
		}
		return c.Skip(by)
	case order == "repeat":
		return subjects.Errorf(subjects.BadRequest, "natsid gives no ID twice, and does not play that it does: "+
			"to test what your code does then, let it store the same ID twice")
	}
	return subjects.Errorf(subjects.BadRequest, "there is no fault %+q: there is %s; without a time a fault lasts "+
		"until resume", order, orders)
}

// last plays a fault for the wanted duration; "" means until [Cluster.Resume].
func (c *Cluster) last(fault, code, wanted string) error {
	d, err := time.ParseDuration(cmp.Or(wanted, "0s"))
	if err != nil || d < 0 || d == 0 && wanted != "" {
		return subjects.Errorf(subjects.BadRequest, "%+q is no time; want one such as 2s or 500ms", wanted)
	}
	switch fault {
	case "stall":
		c.Stall(d)
	case "drop replies":
		c.DropReplies(d)
	default:
		n, err := strconv.Atoi(code)
		if err != nil {
			return subjects.Errorf(subjects.BadRequest, "%+q is no code; want one such as 503", code)
		}
		return c.Refuse(subjects.Code(n), d)
	}
	return nil
}

// listen takes orders on [Control], one after another.
func (c *Cluster) listen() error {
	_, err := c.conn.Subscribe(Control, func(m *nats.Msg) {
		reply := &nats.Msg{Subject: m.Reply, Data: []byte("ok")}
		if err := c.Do(string(m.Data)); err != nil {
			e, ok := errors.AsType[*subjects.Error](err)
			if !ok {
				e = subjects.Errorf(subjects.Internal, "%v", err)
			}
			reply.Data, reply.Header = nil, e.Headers()
		}
		_ = c.conn.PublishMsg(reply) // fails for an order without a reply subject
	})
	return errors.Join(err, c.conn.Flush())
}
