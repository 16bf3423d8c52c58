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

// orders are the faults in words. What follows the words is for play.
var orders = []struct {
	words, example string
	play           func(c *Cluster, rest string) error
}{
	{"stall", "stall 2s", func(c *Cluster, rest string) error { return lasting(rest, c.Stall) }},
	{"refuse", "refuse 503 for 1s", (*Cluster).refuse},
	{"drop replies", "drop replies for 1s", func(c *Cluster, rest string) error { return lasting(rest, c.DropReplies) }},
	{"resume", "resume", func(c *Cluster, rest string) error { return alone(rest, func() error { c.Resume(); return nil }) }},
	{"restart", "restart", func(c *Cluster, rest string) error { return alone(rest, c.Restart) }},
	{"skip", "skip 1000000", (*Cluster).skip},
}

// errRepeat is the answer to an order that natsid does not follow.
var errRepeat = subjects.Errorf(subjects.BadRequest,
	"natsid gives no ID twice, and does not play that it does: to see what your code does then, insert a row twice")

// Do plays the fault that an order names, such as "stall 2s". The error is a [*subjects.Error] of code 400 if the order
// is none.
func (c *Cluster) Do(order string) error {
	order = strings.Join(strings.Fields(order), " ")
	if order == "repeat" {
		return errRepeat
	}
	var examples []string
	for _, o := range orders {
		if rest, ok := strings.CutPrefix(order+" ", o.words+" "); ok {
			return o.play(c, strings.TrimSpace(rest))
		}
		examples = append(examples, o.example)
	}
	return subjects.Errorf(subjects.BadRequest, "there is no fault %+q; there is: %s. A fault without a time lasts "+
		"until resume", order, strings.Join(examples, ", "))
}

// lasting plays a fault for the time in words, "for 2s" or "2s", or without end for "".
func lasting(words string, play func(time.Duration)) error {
	if words == "" {
		play(0)
		return nil
	}
	d, err := time.ParseDuration(strings.TrimPrefix(words, "for "))
	if err != nil || d <= 0 {
		return subjects.Errorf(subjects.BadRequest, "%+q is no time; want one such as 2s or 500ms", words)
	}
	play(d)
	return nil
}

// alone plays a fault after which nothing may follow.
func alone(rest string, play func() error) error {
	if rest != "" {
		return subjects.Errorf(subjects.BadRequest, "nothing may follow, not %+q", rest)
	}
	return play()
}

func (c *Cluster) refuse(rest string) (err error) {
	word, rest, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(word)
	if err != nil {
		return subjects.Errorf(subjects.BadRequest, "%+q is no code; want one such as 503", word)
	}
	return errors.Join(lasting(rest, func(d time.Duration) { err = c.Refuse(subjects.Code(code), d) }), err)
}

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
