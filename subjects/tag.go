package subjects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"time"
)

// MaxDescription is the length limit of a tag's description, in bytes: Leaf's
// varchar(256).
const MaxDescription = 256

// MaxTags is the most tags that one reply lists.
const MaxTags = 1000

// Bounds of a tag's limits.
const (
	MaxBatchLimit = 1_000_000         // IDs a request
	MaxRate       = 1_000_000_000_000 // IDs per second
)

// TagCreate is the request that creates a tag.
type TagCreate struct {
	Tag         string `json:"tag"`
	Step        int64  `json:"step,omitempty"`  // IDs that a load reserves at least; 0 means 1000
	Start       ID     `json:"start,omitempty"` // the first ID; 0 means the lowest that is surely free
	Description string `json:"description,omitempty"`
	// Min is the lowest number, 0 for 1, and Max the highest, 0 for no bound. They are those of each period, if the
	// tag has one.
	Min ID `json:"min,omitempty"`
	Max ID `json:"max,omitempty"`
	// MaxHole bounds how many IDs a crash of one worker can waste, those of unanswered requests not counted; 0 for no
	// bound.
	MaxHole ID `json:"max_hole,omitempty"`
	// Period is daily, monthly or yearly if the numbers begin again with each day, month or year; "" if they do not.
	// The IDs carry the date: yyyyMMdd × 10^8 + number, yyyyMM × 10^10 + number, or yyyy × 10^12 + number.
	Period string `json:"period,omitempty"`
	// Zone is where the day begins: a name of the IANA database, or a difference such as +08:00; "" is UTC.
	Zone string `json:"zone,omitempty"`
	// Strict makes the IDs rise over all workers: if a request is sent after the answer to another has arrived, its IDs
	// are higher. Those of a loose tag rise roughly, and strictly within one worker. The order of a tag never changes.
	Strict bool `json:"strict,omitempty"`
}

// TagUpdate is the request that changes a tag. Fields that are nil leave their value unchanged. At least one must be
// set, and MaxID and RaiseBy exclude each other.
type TagUpdate struct {
	Tag         string  `json:"tag"`
	Step        *int64  `json:"step,omitempty"` // at least 1
	Description *string `json:"description,omitempty"`
	// MaxID is the lowest ID that may be issued from now on. It must not be
	// below the present one: max_id only rises.
	MaxID *ID `json:"max_id,omitempty"`
	// RaiseBy raises max_id by this number, at least 1: so many IDs are skipped.
	RaiseBy *ID `json:"raise_by,omitempty"`
	// MaxBatch is the most IDs that one request for the tag gets, 0 to 1000000, and Rate the most IDs per second, of
	// all workers together, 0 to 10^12. 0 means no limit.
	MaxBatch *int   `json:"max_batch,omitempty"`
	Rate     *int64 `json:"rate,omitempty"`
	// Max and MaxHole are as in [TagCreate]; 0 ends a bound.
	Max     *ID `json:"max,omitempty"`
	MaxHole *ID `json:"max_hole,omitempty"`
	// Force allows to skip more than 2^40 IDs at once. It is for MaxID and RaiseBy.
	Force bool `json:"force,omitempty"`
}

// TagDelete is the request that deletes a tag. A deleted tag is not served, and
// keeps its max_id: created again, it continues above its old IDs.
type TagDelete struct {
	Tag string `json:"tag"`
}

// TagList is the request for a page of tags. The zero value requests the first
// page.
type TagList struct {
	Tag   string `json:"tag,omitempty"`   // lists this tag alone, if there is one; it excludes After and Limit
	After string `json:"after,omitempty"` // the last tag of the previous page
	Limit int    `json:"limit,omitempty"` // most tags of a page, 1 to MaxTags; 0 means MaxTags
}

// TagInfo is a tag as replies show it: one for [Namespace.TagCreate],
// [Namespace.TagUpdate] and [Namespace.TagDelete], and an array in the order of
// tags, by bytes, for [Namespace.TagList]. A page may be shorter than its limit, so
// that the message stays small; it is empty only past the last tag. Where there
// are more than 2000 tags, a page after the first may be up to 2 s old.
type TagInfo struct {
	Tag         string    `json:"tag"`
	Step        int64     `json:"step"`
	MaxID       ID        `json:"max_id"` // the lowest ID that no worker has loaded
	Description string    `json:"description"`
	Updated     time.Time `json:"updated"`              // of the last load or change
	Disabled    bool      `json:"disabled"`             // the tag was deleted
	Unservable  string    `json:"unservable,omitempty"` // why the tag's IDs cannot be requested; "" if they can
	MaxBatch    int       `json:"max_batch,omitempty"`  // most IDs a request; 0 is no limit
	Rate        int64     `json:"rate,omitempty"`       // most IDs per second, of all workers together; 0 is no limit
	Throttle    int64     `json:"throttle,omitempty"`   // the same of each tag
	// The following are as in [TagCreate].
	Strict  bool   `json:"strict,omitempty"`
	Min     ID     `json:"min,omitempty"`
	Max     ID     `json:"max,omitempty"`
	MaxHole ID     `json:"max_hole,omitempty"`
	Period  string `json:"period,omitempty"`
	Zone    string `json:"zone,omitempty"`
	// Hole is how many IDs a crash of the answering worker can waste at most, those of unanswered requests not counted.
	Hole ID `json:"hole,omitempty"`
	// MarkAhead is how far the mark that guards a table is ahead of the row's
	// max_id, negative if it is behind; nil without a table or its guard.
	// MaxID is the higher of the two.
	MarkAhead *int64 `json:"mark_ahead,omitempty,string"`
}

// Examples of the bodies of requests, for error texts and documents.
const (
	exampleCreate = `{"tag":"order","step":1000,"start":"1","description":"..."}`
	exampleUpdate = `{"tag":"order","step":2000,"description":"...","max_id":"5000001"}`
	exampleDelete = `{"tag":"order"}`
	exampleList   = `{"after":"order","limit":100}`
)

// ParseTagCreate reads the body of a request that creates a tag, and sets the
// defaults of fields that it leaves out. The error is an [*Error] of code
// [BadRequest].
func ParseTagCreate(body []byte) (TagCreate, error) {
	c, err := parse(body, exampleCreate, TagCreate.check)
	if err == nil {
		c.Step = cmp.Or(c.Step, 1000)
	}
	return c, err
}

func (c TagCreate) check() error {
	if err := CheckTag(c.Tag); err != nil {
		return err
	}
	return checkDescription(c.Description)
}

func checkDescription(text string) error {
	if len(text) > MaxDescription {
		return Errorf(BadRequest, "the description has %d bytes, want at most %d", len(text), MaxDescription)
	}
	return nil
}

// ParseTagUpdate reads the body of a request that changes a tag. The error is
// an [*Error] of code [BadRequest].
func ParseTagUpdate(body []byte) (TagUpdate, error) {
	example := exampleUpdate + `, or "raise_by":"1000" for max_id, or "max_batch":100,"rate":1000`
	return parse(body, example, TagUpdate.Check)
}

// Check returns nil, or an [*Error] of code [BadRequest] that names the fault of the request.
func (u TagUpdate) Check() error {
	if err := CheckTag(u.Tag); err != nil {
		return err
	}
	switch {
	case u.Step == nil && u.Description == nil && u.MaxID == nil && u.RaiseBy == nil && !u.ChangesRules():
		return Errorf(BadRequest,
			"nothing to change: give step, description, max_id, raise_by, max, max_hole, max_batch or rate")
	case u.Force && u.MaxID == nil && u.RaiseBy == nil:
		return Errorf(BadRequest, "force is for max_id and raise_by: give one of them, or leave it out")
	case u.MaxID != nil && u.RaiseBy != nil:
		return Errorf(BadRequest, "max_id and raise_by exclude each other: give one")
	case u.Step != nil && *u.Step < 1:
		return Errorf(BadRequest, "step %d, want at least 1", *u.Step)
	case u.MaxID != nil && *u.MaxID < 1:
		return Errorf(BadRequest, "max_id %d, want at least 1", *u.MaxID)
	case u.RaiseBy != nil && *u.RaiseBy < 1:
		return Errorf(BadRequest, "raise_by %d, want at least 1: max_id only rises", *u.RaiseBy)
	case u.MaxBatch != nil && (*u.MaxBatch < 0 || *u.MaxBatch > MaxBatchLimit):
		return Errorf(BadRequest, "max_batch %d, want 1..%d, or 0 for no limit", *u.MaxBatch, MaxBatchLimit)
	case u.Rate != nil && (*u.Rate < 0 || *u.Rate > MaxRate):
		return Errorf(BadRequest, "rate %d, want 1..%d, or 0 for no limit", *u.Rate, int64(MaxRate))
	case u.Description != nil:
		return checkDescription(*u.Description)
	}
	return nil
}

// ChangesRules reports whether the request changes the bounds or the limits of the tag.
func (u TagUpdate) ChangesRules() bool { return u.Max != nil || u.MaxHole != nil || u.ChangesLimit() }

// ChangesLimit reports whether the request changes the limits of the tag.
func (u TagUpdate) ChangesLimit() bool { return u.MaxBatch != nil || u.Rate != nil }

// ParseTagDelete reads the body of a request that deletes a tag. The error is
// an [*Error] of code [BadRequest].
func ParseTagDelete(body []byte) (TagDelete, error) {
	return parse(body, exampleDelete, func(d TagDelete) error { return CheckTag(d.Tag) })
}

// ParseTagList reads the body of a request for a page of tags, and sets the
// defaults of fields that it leaves out. The error is an [*Error] of code
// [BadRequest].
func ParseTagList(body []byte) (l TagList, err error) {
	if len(body) > 0 {
		l, err = parse(body, exampleList, TagList.check)
	}
	if err == nil {
		l.Limit = cmp.Or(l.Limit, MaxTags)
	}
	return l, err
}

func (l TagList) check() error {
	switch {
	case l.Tag != "" && (l.After != "" || l.Limit != 0):
		return Errorf(BadRequest, "tag excludes after and limit: give it alone")
	case l.Tag != "":
		return CheckTag(l.Tag)
	case l.Limit < 0 || l.Limit > MaxTags:
		return Errorf(BadRequest, "limit %d, want 1..%d", l.Limit, MaxTags)
	}
	return nil
}

// parse reads one JSON object without fields that T does not have, and checks it. With an error it returns the zero T.
func parse[T any](body []byte, example string, check func(T) error) (v T, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&v); err == nil && dec.More() {
		err = errors.New("more data follows the object")
	}
	if err != nil {
		return *new(T), Errorf(BadRequest, "the body is not a request (%s); want JSON such as %s",
			excerpt([]byte(err.Error()), 100), example)
	}
	if err = check(v); err != nil {
		return *new(T), err
	}
	return v, nil
}
