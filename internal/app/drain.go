package app

import (
	"errors"

	"github.com/natsid/natsid/worker"
)

// drained is the source of what other workers are to serve since an operator says so.
const drained = "drain"

var errDrained = errors.New("drained by an operator: it takes no requests until `natsid drain --undo`, or a restart")

// drain leaves all queue groups and keeps the worker number, or joins them again, and
// reports whether that is a change. It ends with the process, and outlasts a move to
// another NATS server.
func (p *program) drain(leave bool) (changed bool) {
	modes := []worker.Mode{worker.Segment, worker.Tags, worker.Snowflake}
	if p.away.has(drained) == leave {
		return false
	}
	if leave {
		p.away.refuse(drained, errDrained, modes...)
	} else {
		p.away.allow(drained, modes...)
	}
	return true
}
