package testbed

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// Control is the subject of orders: a request whose body is an order in words. See [Cluster.Do].
const Control = "natsid.test"

// Orders are examples of all orders.
var Orders = []string{
	"stall 2s", "refuse 503 for 1s", "drop replies for 1s", "resume", "restart", "skip 1000000",
}

// Do plays the fault that an order names, one such as [Orders]. Without a time it lasts until "resume". The error is a
// [*subjects.Error] of code 400 if the order is none.
func (c *Cluster) Do(order string) error {
	order = strings.Join(strings.Fields(order), " ")
	switch verb, rest, _ := strings.Cut(order, " "); {
	case order == "resume":
		c.Resume()
		return nil
	case order == "restart":
		return c.Restart()
	case verb == "stall":
		return c.lasting(fault{kind: stalls}, rest)
	case verb == "drop" && strings.HasPrefix(rest+" ", "replies "):
		return c.lasting(fault{kind: drops}, rest[len("replies"):])
	case verb == "refuse":
		return c.refuse(rest)
	case verb == "skip":
		return c.skip(rest)
	case order == "repeat":
		return subjects.Errorf(subjects.BadRequest, "natsid gives no ID twice, and does not play that it does: "+
			"to test what your code does then, let it store the same ID twice")
	}
	return subjects.Errorf(subjects.BadRequest, "there is no fault %+q: there is %s; without a time a fault lasts "+
		"until resume", order, strings.Join(Orders, ", "))
}

// lasting plays a fault for the time in words, "for 2s" or "2s", or without end for "".
func (c *Cluster) lasting(f fault, words string) (err error) {
	d := time.Duration(0)
	if words = strings.TrimSpace(words); words != "" {
		d, err = time.ParseDuration(strings.TrimPrefix(words, "for "))
		if err != nil || d <= 0 {
			return subjects.Errorf(subjects.BadRequest, "%+q is no time; want one such as 2s or 500ms", words)
		}
	}
	c.proxy.play(f, d)
	return nil
}

// refuse plays a refusal in words, "503 for 1s".
func (c *Cluster) refuse(rest string) error {
	word, rest, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(word)
	if err != nil {
		return subjects.Errorf(subjects.BadRequest, "%+q is no code; want one such as 503", word)
	}
	f, err := refusal(subjects.Code(code))
	if err != nil {
		return err
	}
	return c.lasting(f, rest)
}

// skip plays a jump of the IDs by a number in words.
func (c *Cluster) skip(rest string) error {
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || n < 1 {
		return subjects.Errorf(subjects.BadRequest, "%+q is no number of IDs; want one such as 1000000", rest)
	}
	return c.Skip(n)
}

// listen takes orders on [Control], one after another.
func (c *Cluster) listen() error {
	_, err := c.conn.Subscribe(Control, func(m *nats.Msg) {
		reply := &nats.Msg{Subject: m.Reply, Data: []byte("ok")}
		if err := c.Do(string(m.Data)); err != nil {
			reply.Data, reply.Header = nil, wireError(err).Headers()
		}
		_ = c.conn.PublishMsg(reply) // fails for an order without a reply subject
	})
	return errors.Join(err, c.conn.Flush())
}

// wireError returns err as it crosses the wire.
func wireError(err error) *subjects.Error {
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		return e
	}
	return subjects.Errorf(subjects.Internal, "%v", err)
}
