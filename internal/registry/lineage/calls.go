package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/registry/era"
)

// An op says what a call, a question sent to a worker, asks for.
type op string

const (
	opNotice op = "notice" // which registry the asked worker is in: its notice, after a check if the caller's differs
	opLook   op = "look"   // its notice, from a caller without a registry
	opMarks  op = "marks"  // a page of the marks (next IDs) of tags
	opStop   op = "stop"   // stop, since an operator has chosen another registry to serve
)

// A call is a question of a worker or an operator to a worker, and a reply is the answer. Both cross the wire as JSON.
type call struct {
	Op    op     `json:"op"`
	From  Notice `json:"from,omitzero"` // zero from an operator
	After string `json:"after,omitempty"`
	Keep  string `json:"keep,omitempty"`
}

type reply struct {
	Notice Notice           `json:"notice"`
	Marks  map[string]int64 `json:"marks,omitempty"` // by tag
	Eras   era.Offsets      `json:"eras,omitempty"`  // eras of the stopped registry
	Error  string           `json:"error,omitempty"`
}

// marksPage is how many marks (next IDs of tags) one answer has at most.
const marksPage = 500

// Answer answers a call of another worker or an operator. Anyone may have sent it.
func (w *Member) Answer(ctx context.Context, question []byte) []byte {
	var c call
	if err := json.Unmarshal(question, &c); err != nil {
		return encode(reply{Error: "the call cannot be read"})
	}
	if c.From.Process == w.cfg.Process {
		return nil // this worker's own question
	}
	var r reply
	var err error
	switch c.Op {
	case opNotice:
		w.checkFor(ctx, c.From)
	case opLook:
		_ = w.Ready(ctx) // the notice in the answer shows the outcome
	case opMarks:
		r.Marks, err = w.page(ctx, c.After)
	case opStop:
		err = w.checks.do(ctx, func() error { return w.checks.stopFor(ctx, c.Keep) })
		r.Eras = w.Identity().Knowing(nil).Offsets
	default:
		err = fmt.Errorf("unknown op %.20q", c.Op)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Notice = w.Notice()
	return encode(r)
}

// checkFor checks the registry if the caller is of another registry or era, so that the answer is up to date. It does
// not wait for a check if the caller only knows lower revisions: the caller may be asking within a check of its own,
// and each of the two would wait for the other.
func (w *Member) checkFor(ctx context.Context, n Notice) {
	own := w.Notice()
	switch {
	case n.Registry != own.Registry || n.Era != own.Era:
		w.Doubt()
		_ = w.Ready(ctx) // the notice in the answer shows the outcome
	case n.Revision < own.Revision:
		w.Doubt()
	}
	if n.Registry != "" { // it counts as heard
		w.hear(n)
	}
}

// page returns the marks (next IDs) of the tags whose names follow the parameter after, or how far this worker has
// loaded a tag if that is higher. It has 0 for a tag that has a last number, or waits for an operator to say where it
// continues.
func (w *Member) page(ctx context.Context, after string) (marks map[string]int64, err error) {
	tags, err := w.cfg.Tags.List(ctx, after, marksPage)
	if err != nil {
		return nil, err
	}
	marks = make(map[string]int64)
	floors := w.loaded.Floors()
	for _, t := range tags {
		marks[t.Name] = 0
		if !t.Undecided && !t.Rules.Bounded() {
			marks[t.Name] = max(t.MaxID, floors[t.Name].End)
		}
	}
	return marks, nil
}

// AskFunc sends a call to one worker of a registry, or, if registry is "", of each registry: see [Bus].
type AskFunc func(ctx context.Context, registry string, call []byte, hear func(answer []byte) (enough bool)) error

// ask sends a call (a question), and calls hear with each reply that can be read.
func (ask AskFunc) ask(ctx context.Context, registry string, c call, hear func(reply) (enough bool)) error {
	return ask(ctx, registry, encode(c), func(answer []byte) bool {
		var r reply
		if json.Unmarshal(answer, &r) != nil || r.Notice.check() != nil || r.Notice.Process == c.From.Process {
			return false
		}
		return hear(r)
	})
}

// Notices asks one worker of each registry for its notice, what it says about its registry, and returns those that come
// at once. A worker of another registry or era than the caller checks its registry before it answers.
func (ask AskFunc) Notices(ctx context.Context, from Notice) (all []Notice, err error) {
	return ask.notices(ctx, call{Op: opNotice, From: from})
}

// Look is Notices for a caller without a registry, such as a program that has a worker number. The answer rests on a
// check of the last 3 s, so that a thousand programs may look all the time.
func (ask AskFunc) Look(ctx context.Context, process string) (all []Notice, err error) {
	return ask.notices(ctx, call{Op: opLook, From: Notice{Process: process}})
}

func (ask AskFunc) notices(ctx context.Context, c call) (all []Notice, err error) {
	ctx, cancel := context.WithTimeout(ctx, noticesTimeout)
	defer cancel()
	seen := make(map[string]bool)
	err = ask.ask(ctx, "", c, func(r reply) bool {
		if !seen[r.Notice.Registry] {
			seen[r.Notice.Registry] = true
			all = append(all, r.Notice)
		}
		return false
	})
	return all, err
}

// one sends a call (a question) to one worker of a registry, and returns its reply.
func (ask AskFunc) one(ctx context.Context, registry string, c call) (r reply, err error) {
	answered := false
	err = ask.ask(ctx, registry, c, func(got reply) bool {
		r, answered = got, true
		return true
	})
	switch {
	case answered && r.Error != "":
		return r, errors.New(r.Error)
	case answered:
		return r, nil
	case err == nil:
		err = fmt.Errorf("lineage: no worker of registry %s answers", registry)
	}
	return r, err
}

// Stop stops a registry so that another one, keep, serves: a worker of the registry writes that into its identity,
// the entry that describes it. Stop returns the eras of the stopped registry.
func (ask AskFunc) Stop(ctx context.Context, registry, keep string) (era.Offsets, error) {
	r, err := ask.one(ctx, registry, call{Op: opStop, Keep: keep})
	return r.Eras, err
}

// Marks returns the marks (next IDs) of a registry's tags, as its workers read them.
func (ask AskFunc) Marks(ctx context.Context, registry string) (all map[string]int64, err error) {
	all = make(map[string]int64)
	for after := ""; ; {
		r, err := ask.one(ctx, registry, call{Op: opMarks, After: after})
		if err != nil || len(r.Marks) == 0 {
			return all, err
		}
		for tag, mark := range r.Marks {
			after, all[tag] = max(after, tag), mark
		}
	}
}
