package subjects

// Drain returns the subject on which one worker takes the orders of operators to leave its
// queue groups, or to join them again. The worker is named by the ID of its service in
// replies on [Namespace.SegmentPing]; "*" stands for all of them. Only operators should be
// allowed to publish on it.
func (n Namespace) Drain(id string) string { return string(n) + ".control.drain." + id }

// WorkerDrain is the order to one worker to leave its queue groups: the worker takes no more requests, and keeps its
// worker number, until it is stopped or gets an order with Undo. The order may be repeated, to see how far the worker
// is.
type WorkerDrain struct {
	Undo bool `json:"undo,omitempty"` // join the queue groups again
}

// WorkerDrained is the answer to a WorkerDrain: the state of the worker after the order.
type WorkerDrained struct {
	Instance string   `json:"instance"` // name of the worker
	Number   *int     `json:"number"`   // its worker number; null while it has none
	Drained  bool     `json:"drained"`
	Serves   []string `json:"serves"` // the modes whose requests are delivered to it; empty once it has left
	Open     int64    `json:"open"`   // requests that it has taken and not answered yet
}

const exampleDrain = `{"undo":true}`

// ParseWorkerDrain reads the body of an order, which may be empty. The error is an [*Error]
// of code [BadRequest].
func ParseWorkerDrain(body []byte) (WorkerDrain, error) {
	if len(body) == 0 {
		return WorkerDrain{}, nil
	}
	return parse(body, exampleDrain, func(WorkerDrain) error { return nil })
}
