package oneregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An op is what a call asks of one worker of a registry.
type op string

const (
	opState   op = "state"   // who are you? Read afresh.
	opKnown   op = "known"   // who are you, as you remember?
	opLift    op = "lift"    // raise tags to marks
	opYield   op = "yield"   // yield to another registry; from an operator
	opStay    op = "stay"    // serve again, the others have yielded; from an operator
	opRelease op = "release" // serve again; from an operator
)

// A call is a question or an order, and reply its answer. Both cross the wire as JSON.
type call struct {
	Op    op     `json:"op"`
	From  Notice `json:"from,omitzero"` // zero from an operator
	Marks []Mark `json:"marks,omitempty"`
	To    string `json:"to,omitempty"`    // whom to yield to
	Force bool   `json:"force,omitempty"` // serve although the other registry does not answer
}

type reply struct {
	Notice Notice `json:"notice"`
	Live   []int  `json:"live,omitempty"`
	Spans  []Span `json:"spans,omitempty"`
	// Failed says why tags were not raised.
	Failed map[string]string `json:"failed,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// Answer answers a question, or a call to a worker of this registry, which anyone may have sent. It returns by the time
// ctx ends.
func (w *Watch) Answer(ctx context.Context, data []byte) []byte {
	var c call
	if err := json.Unmarshal(data, &c); err != nil {
		return encode(reply{Error: "the call cannot be read"})
	}
	if c.From.Process == w.cfg.Process {
		return nil // its own question
	}
	r, err := w.answer(ctx, c)
	if err != nil {
		r.Error = err.Error()
	}
	w.mu.Lock()
	r.Notice, r.Live = w.own, w.live
	r.Notice.Settled = w.own.ID != "" && time.Since(w.began) > settledAfter // though it was not read since
	w.mu.Unlock()
	if c.Op == opKnown {
		r.Notice.Fresh = false
	}
	return encode(r)
}

func (w *Watch) answer(ctx context.Context, c call) (r reply, err error) {
	if c.Op != opKnown {
		w.readFor(ctx, c.From)
	}
	if c.From.ID != "" {
		w.Hear(encode(c.From)) // who asks is there, too
	}
	switch c.Op {
	case opState, opKnown:
		return reply{}, nil
	case opLift:
		r.Spans, r.Failed = w.cfg.Home.Lift(ctx, c.Marks)
		return r, nil
	case opYield:
		return reply{}, w.yieldTo(ctx, c.To)
	case opStay:
		return reply{}, w.stay(ctx, c.Force)
	case opRelease:
		return reply{}, w.letGo(ctx)
	}
	return reply{}, fmt.Errorf("unknown op %.20q", c.Op)
}

// readFor reads the registry afresh for who asks. A worker that has just read this same registry asks to learn of
// others: of a thousand that start at once, none makes another one read. Only an operator, and a worker of another
// registry, must know how many live workers there are.
func (w *Watch) readFor(ctx context.Context, from Notice) {
	own, _ := w.mine()
	same := from.ID != "" && from.ID == own.ID && !own.Differs(from)
	if !same || !own.Fresh {
		w.reread(ctx, from.Process == "" || from.ID != "" && !same)
	}
}

// yieldTo yields as an operator asked for, to a registry that answers.
func (w *Watch) yieldTo(ctx context.Context, to string) error {
	own, _ := w.mine()
	if own.Is(to) {
		return errors.New("a registry cannot yield to itself")
	}
	r, err := w.call(ctx, to, call{Op: opState})
	if err != nil {
		return err
	}
	w.decide(ctx, Verdict{Yields: r.Notice.ID, Ordered: true})
	if _, v := w.mine(); v.Yields != r.Notice.ID {
		return errors.New("the decision could not be written: try again")
	}
	return nil
}

// stay makes this registry serve again after it had yielded: once the one that served instead has yielded to it, and
// its marks are merged.
func (w *Watch) stay(ctx context.Context, force bool) error {
	own, v := w.mine()
	if v.Yields == "" {
		return nil
	}
	r, err := w.call(ctx, v.Yields, call{Op: opState})
	switch {
	case unreachable(err) && force:
	case unreachable(err):
		return fmt.Errorf("registry %s, which served instead, cannot be reached, so its marks cannot be merged: "+
			"connect it; or, if it is gone for good, use --force, and at once `natsid tag raise --all --by N`, "+
			"N above what it can have issued", v.Yields)
	case err != nil:
		return err
	case !own.Is(r.Notice.Yields) || !r.Notice.Merged:
		return fmt.Errorf("registry %s still serves, or its marks are not merged yet: try again", v.Yields)
	}
	w.decide(ctx, Verdict{})
	return nil
}

// letGo forgets that this registry has yielded, if the other one is not connected any more.
func (w *Watch) letGo(ctx context.Context) error {
	_, v := w.mine()
	if v.Yields == "" {
		return nil
	}
	_, err := w.call(ctx, v.Yields, call{Op: opState})
	if err == nil {
		return fmt.Errorf("registry %s still answers on the same subjects: separate them first, "+
			"by a namespace or by the permissions of the link", v.Yields)
	}
	if !unreachable(err) {
		return err
	}
	w.decide(ctx, Verdict{})
	return nil
}

// unreachable reports whether a call says that no worker is there. Silence is no answer: someone else may listen.
func unreachable(err error) bool {
	return errors.Is(err, ErrNoWorker) || errors.Is(err, context.DeadlineExceeded)
}

// call asks a worker of another registry.
func (w *Watch) call(ctx context.Context, registry string, c call) (r reply, err error) {
	c.From, _ = w.mine()
	return send(ctx, w.cfg.Bus, registry, c)
}

func send(ctx context.Context, bus Bus, registry string, c call) (r reply, err error) {
	timeout := callTimeout
	if c.Op == opLift {
		timeout = liftTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data, err := bus.Call(ctx, registry, encode(c))
	if err != nil {
		return reply{}, err
	}
	return parseReply(data)
}

func parseReply(data []byte) (r reply, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return reply{}, fmt.Errorf("oneregistry: an answer that cannot be read: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, r.Notice.check()
}

// ErrOther is returned by [Watch.Start] while another worker makes snowflakes of other fields.
var ErrOther = errors.New("oneregistry: another worker of this namespace makes other snowflakes")

// Start asks who is there, and returns once this worker may serve what is not refused. It returns [ErrOther] if this
// worker must not serve at all. It waits 400 ms at most for answers: someone may listen to the question and not
// answer, and that is no answer. Where no worker listens, NATS says so at once. A worker whose JetStream is away is not
// held up: it can issue only what it was given before.
func (w *Watch) Start(ctx context.Context) error {
	w.load()
	away := !w.reread(ctx, !counted)
	if err := w.askAll(ctx); err != nil {
		return err
	}
	w.join()
	w.next = time.Now().Add(w.cfg.Jitter(retryAfter))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = away || w.own.ID != "" // one that is being made is waited for
	w.settleLocked()
	return nil
}

// askAll asks all registries who they are, and meets those that are not this worker's.
func (w *Watch) askAll(ctx context.Context) error {
	own, _ := w.mine()
	var all []Notice
	err := ask(ctx, w.cfg.Bus, call{Op: opState, From: own}, func(n Notice) bool {
		all = append(all, n)
		return own.ID == "" || own.Differs(n) || !n.Settled // a settled worker of this registry knows of no other
	})
	if err != nil {
		w.cfg.Log.Warn("the question which registries there are was not asked", "error", err)
	}
	for _, n := range all {
		if n.serves() && !n.SameIDs(own) {
			return fmt.Errorf("%w: worker %q has layout %s, epoch %d, ticks of %d ms; this one was started with "+
				"layout %s, epoch %d, ticks of %d ms: start it with the same, or in a namespace of its own, "+
				"or stop all workers first to change the layout",
				ErrOther, n.Instance, n.Layout, n.Epoch, n.Unit, own.Layout, own.Epoch, own.Unit)
		}
	}
	for _, n := range all {
		if own.ID != "" && own.Differs(n) {
			w.meet(ctx, n)
		}
	}
	return nil
}

// ask calls see with the notice of one worker of each registry, until that returns false.
func ask(ctx context.Context, bus Bus, c call, see func(Notice) bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return bus.Ask(ctx, encode(c), func(data []byte) bool {
		r, err := parseReply(data)
		if err != nil || r.Notice.Process == c.From.Process {
			return true
		}
		return see(r.Notice)
	})
}

// MayFound returns an error if a live worker of the namespace has marks already: what is made beside it is not
// original.
func (w *Watch) MayFound(ctx context.Context) error {
	own, _ := w.mine()
	var found error
	err := ask(ctx, w.cfg.Bus, call{Op: opKnown, From: own}, func(n Notice) bool {
		if n.Segments != "" {
			found = fmt.Errorf("oneregistry: worker %q of this namespace rests on registry %s", n.Instance, n.ID)
		}
		return found == nil
	})
	return errors.Join(err, found)
}

// MayMake returns an error if a live worker of the namespace makes snowflakes of other fields.
func (w *Watch) MayMake(ctx context.Context) error {
	own, _ := w.mine()
	var found error
	err := ask(ctx, w.cfg.Bus, call{Op: opKnown, From: own}, func(n Notice) bool {
		if n.serves() && !n.SameIDs(own) {
			found = fmt.Errorf("%w: worker %q has layout %s, epoch %d, ticks of %d ms", ErrOther, n.Instance,
				n.Layout, n.Epoch, n.Unit)
		}
		return found == nil
	})
	return errors.Join(err, found)
}
