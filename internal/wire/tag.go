package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"

	"github.com/natsid/natsid/subjects"
)

// MaxDescription is the length limit of a tag's description, in bytes: Leaf's varchar(256).
const MaxDescription = 256

// MaxTags is the most tags that one reply lists.
const MaxTags = 1000

// Bounds of a tag's limits.
const (
	MaxBatchLimit = 1_000_000         // IDs a request
	MaxRate       = 1_000_000_000_000 // IDs per second
)

// Undecided is the reason why a tag is not served until an operator sets its next ID.
const Undecided = "undecided since a resume"

// TagUpdate is the request that changes a tag. Fields that are nil leave their value unchanged. At least one must be
// set, and NextID and RaiseBy exclude each other.
type TagUpdate struct {
	Tag         string  `json:"tag"`
	Step        *int64  `json:"step,omitempty"` // at least 1
	Description *string `json:"description,omitempty"`
	// NextID is the lowest ID that may be issued from now on. It must be at least the tag's present next_id.
	NextID *subjects.ID `json:"next_id,omitempty"`
	// RaiseBy is how many IDs are skipped, at least 1: next_id is raised by it.
	RaiseBy *subjects.ID `json:"raise_by,omitempty"`
	// MaxBatch is the most IDs that one request for the tag gets, 0 to 1000000, and Rate the most IDs per second, of
	// all workers together, 0 to 10^12. 0 means no limit.
	MaxBatch *int   `json:"max_batch,omitempty"`
	Rate     *int64 `json:"rate,omitempty"`
	// Max and MaxHole are as in [subjects.TagCreate]; 0 removes the bound.
	Max     *subjects.ID `json:"max,omitempty"`
	MaxHole *subjects.ID `json:"max_hole,omitempty"`
	// Force allows NextID or RaiseBy to skip more than 2^40 IDs.
	Force bool `json:"force,omitempty"`
}

// TagDelete is the request that deletes a tag. A deleted tag is not served, and keeps its next_id: if it is created
// again, it continues above its old IDs.
type TagDelete struct {
	Tag string `json:"tag"`
}

// Examples of the bodies of requests, for error texts and documents.
const (
	exampleCreate   = `{"tag":"order","step":1000,"start":"1","description":"..."}`
	exampleUpdate   = `{"tag":"order","step":2000,"description":"...","next_id":"5000001"}`
	exampleDelete   = `{"tag":"order"}`
	exampleList     = `{"after":"order","limit":100}`
	exampleThrottle = `{"rate":500}`
)

// ParseTagCreate reads the body of a request that creates a tag, and sets the defaults of absent fields. Its error,
// like those of the functions below, is an [*subjects.Error] of code [subjects.BadRequest].
func ParseTagCreate(body []byte) (subjects.TagCreate, error) {
	c, err := parse(body, exampleCreate, checkCreate)
	if err == nil {
		c.Step = cmp.Or(c.Step, 1000)
	}
	return c, err
}

func checkCreate(c subjects.TagCreate) error {
	if err := subjects.CheckTag(c.Tag); err != nil {
		return err
	}
	return checkDescription(c.Description)
}

func checkDescription(text string) error {
	if len(text) > MaxDescription {
		return bad("the description has %d bytes, want at most %d", len(text), MaxDescription)
	}
	return nil
}

// ParseTagUpdate reads the body of a request that changes a tag.
func ParseTagUpdate(body []byte) (TagUpdate, error) {
	example := exampleUpdate + `, or "raise_by":"1000" for next_id, or "max_batch":100,"rate":1000`
	return parse(body, example, TagUpdate.Check)
}

// Check returns nil, or an [*subjects.Error] of code [subjects.BadRequest] that names the fault of the request.
func (u TagUpdate) Check() error {
	if err := subjects.CheckTag(u.Tag); err != nil {
		return err
	}
	switch {
	case u.Step == nil && u.Description == nil && u.NextID == nil && u.RaiseBy == nil && !u.ChangesRules():
		return bad("nothing to change: give step, description, next_id, raise_by, max, max_hole, max_batch or rate")
	case u.Force && u.NextID == nil && u.RaiseBy == nil:
		return bad("force is for next_id and raise_by: give one of them, or leave it out")
	case u.NextID != nil && u.RaiseBy != nil:
		return bad("next_id and raise_by exclude each other: give one")
	case u.Step != nil && *u.Step < 1:
		return bad("step %d, want at least 1", *u.Step)
	case u.NextID != nil && *u.NextID < 1:
		return bad("next_id %d, want at least 1", *u.NextID)
	case u.RaiseBy != nil && *u.RaiseBy < 1:
		return bad("raise_by %d, want at least 1: next_id only rises", *u.RaiseBy)
	case u.MaxBatch != nil && (*u.MaxBatch < 0 || *u.MaxBatch > MaxBatchLimit):
		return bad("max_batch %d, want 1..%d, or 0 for no limit", *u.MaxBatch, MaxBatchLimit)
	case u.Rate != nil && (*u.Rate < 0 || *u.Rate > MaxRate):
		return bad("rate %d, want 1..%d, or 0 for no limit", *u.Rate, int64(MaxRate))
	case u.Description != nil:
		return checkDescription(*u.Description)
	}
	return nil
}

// ChangesRules reports whether the request changes the bounds or the limits of the tag.
func (u TagUpdate) ChangesRules() bool {
	return u.Max != nil || u.MaxHole != nil || u.MaxBatch != nil || u.Rate != nil
}

// ParseTagDelete reads the body of a request that deletes a tag.
func ParseTagDelete(body []byte) (TagDelete, error) {
	return parse(body, exampleDelete, func(d TagDelete) error { return subjects.CheckTag(d.Tag) })
}

// ParseTagList reads the body of a request for a page of tags, and sets the defaults of absent fields.
func ParseTagList(body []byte) (l subjects.TagList, err error) {
	if len(body) > 0 {
		l, err = parse(body, exampleList, checkList)
	}
	if err == nil {
		l.Limit = cmp.Or(l.Limit, MaxTags)
	}
	return l, err
}

func checkList(l subjects.TagList) error {
	switch {
	case l.Tag != "" && (l.After != "" || l.Limit != 0):
		return bad("tag excludes after and limit: give it alone")
	case l.Tag != "":
		return subjects.CheckTag(l.Tag)
	case l.Limit < 0 || l.Limit > MaxTags:
		return bad("limit %d, want 1..%d", l.Limit, MaxTags)
	}
	return nil
}

// Throttle is the request that limits the rate of every tag, and its answer. Rate must be set: IDs per second of all
// workers together, 1 to MaxRate; 0 ends the throttle. A tag's own rate still applies if it is lower.
type Throttle struct {
	Rate *int64 `json:"rate"`
}

// ParseThrottle reads the body of a [Throttle] request.
func ParseThrottle(body []byte) (Throttle, error) {
	return parse(body, exampleThrottle, func(t Throttle) error {
		if t.Rate == nil || *t.Rate < 0 || *t.Rate > MaxRate {
			return bad("want a rate, 1..%d IDs per second, or 0 to end the throttle", int64(MaxRate))
		}
		return nil
	})
}

// parse reads one JSON object and checks it. A field that T lacks is an error. With an error it returns the zero T.
func parse[T any](body []byte, example string, check func(T) error) (v T, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&v); err == nil && dec.More() {
		err = errors.New("more data follows the object")
	}
	if err != nil {
		return *new(T), bad("the body is not a request (%+.100q); want JSON such as %s",
			err.Error(), example)
	}
	if err = check(v); err != nil {
		return *new(T), err
	}
	return v, nil
}
