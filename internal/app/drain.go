package app

import (
	"errors"

	"github.com/natsid/natsid/worker"
)

var errDrained = errors.New("drained by an operator: it takes no requests until `natsid drain --undo`, or a restart")

// drain leaves all queue groups and keeps the worker number, or joins them again, and reports whether that is a
// change. The drained state ends with the process, and survives a reconnect to another NATS server.
func (p *program) drain(leave bool) (changed bool) {
	modes := []worker.Mode{worker.Segment, worker.Tags, worker.Snowflake}
	if p.reasons.Has(worker.Drained) == leave {
		return false
	}
	if leave {
		p.reasons.Set(worker.Drained, errDrained, modes...)
	} else {
		p.reasons.Clear(worker.Drained, modes...)
	}
	return true
}
