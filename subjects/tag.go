package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// MaxDescription is the length limit of a tag's description in bytes: Leaf's
// varchar(256).
const MaxDescription = 256

// MaxTags is how many tags one reply lists at most.
const MaxTags = 1000

// TagCreate is the request that makes a tag.
type TagCreate struct {
	Tag         string  `json:"tag"`
	Step        int64   `json:"step,omitempty"`  // 1000 if 0
	Start       Decimal `json:"start,omitempty"` // its first ID; 1 if 0
	Description string  `json:"description,omitempty"`
}

// TagUpdate is the request that changes a tag. What is nil stays as it is; at
// least one of them must not be. MaxID and RaiseBy exclude each other.
type TagUpdate struct {
	Tag         string  `json:"tag"`
	Step        *int64  `json:"step,omitempty"`
	Description *string `json:"description,omitempty"`
	// MaxID is the first ID that may be handed out from now on. It cannot go
	// below where it is.
	MaxID *Decimal `json:"max_id,omitempty"`
	// RaiseBy leaves out so many IDs above max_id as it is then.
	RaiseBy *Decimal `json:"raise_by,omitempty"`
}

// TagDelete is the request that deletes a tag: it is served no more, and keeps
// its max_id. Made again it goes on above.
type TagDelete struct {
	Tag string `json:"tag"`
}

// TagList is the request for a page of tags.
type TagList struct {
	After string `json:"after,omitempty"` // the last tag of the page before
	Limit int    `json:"limit,omitempty"` // MaxTags if 0
	// Stats adds to each tag what the worker that answers knows of it.
	Stats bool `json:"stats,omitempty"`
}

// TagInfo is a tag as replies show it. [Namespace.TagCreate],
// [Namespace.TagUpdate] and [Namespace.TagDelete] are answered with one,
// [Namespace.TagList] with an array of them in the order of tags. A page may
// have fewer than were asked for, so that it stays within what NATS carries; it
// has none only past the last tag.
type TagInfo struct {
	Tag         string    `json:"tag"`
	Step        int64     `json:"step"`
	MaxID       Decimal   `json:"max_id"` // the next ID that nobody has loaded
	Description string    `json:"description"`
	Updated     time.Time `json:"updated"`
	Disabled    bool      `json:"disabled"`
	Unservable  string    `json:"unservable,omitempty"` // why no request can get its IDs; "" if one can

	// Only where [TagList] asks for them:

	// MarkAhead is how far the mark that guards a table is ahead of the row's
	// max_id, negative if it is behind; nil without a table or its guard.
	// MaxID is the higher of the two.
	MarkAhead *Decimal `json:"mark_ahead,omitempty"`
	// Stats is of the worker that answers; nil if the tag is not in its memory.
	Stats *TagStats `json:"stats,omitempty"`
}

// A Decimal is an integer that JSON carries as a string, since JavaScript
// rounds large numbers. A plain number is read as well.
type Decimal int64

// MarshalJSON writes the decimal as a string.
func (d Decimal) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(d), 10)), nil
}

// UnmarshalJSON reads a string of digits, or a number without fraction.
func (d *Decimal) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(data), `"`), 10, 64)
	if err == nil {
		*d = Decimal(n)
	}
	return err
}

// ParseTagCreate reads the body of a request that makes a tag, and fills in
// what it leaves out. The error is an [*Error] of code 400.
func ParseTagCreate(body []byte) (c TagCreate, err error) {
	if err := parseJSON(body, &c, `{"tag":"order","step":1000,"start":1,"description":"..."}`); err != nil {
		return TagCreate{}, err
	}
	if err := CheckTag(c.Tag); err != nil {
		return TagCreate{}, err
	}
	if err := checkDescription(c.Description); err != nil {
		return TagCreate{}, err
	}
	if c.Step == 0 {
		c.Step = 1000
	}
	if c.Start == 0 {
		c.Start = 1
	}
	return c, nil
}

func checkDescription(text string) error {
	if len(text) > MaxDescription {
		return Errorf(BadRequest, "the description has %d bytes, want at most %d", len(text), MaxDescription)
	}
	return nil
}

// ParseTagUpdate reads the body of a request that changes a tag. The error is
// an [*Error] of code 400.
func ParseTagUpdate(body []byte) (u TagUpdate, err error) {
	if err := parseJSON(body, &u, `{"tag":"order","step":2000,"description":"...","max_id":"5000001"}, or "raise_by":"1000" for max_id`); err != nil {
		return TagUpdate{}, err
	}
	if err := u.Check(); err != nil {
		return TagUpdate{}, err
	}
	return u, nil
}

// Check returns an [*Error] of code 400 that says what is wrong with the
// request, or nil.
func (u TagUpdate) Check() error {
	if err := CheckTag(u.Tag); err != nil {
		return err
	}
	switch {
	case u.Step == nil && u.Description == nil && u.MaxID == nil && u.RaiseBy == nil:
		return Errorf(BadRequest, "nothing to change: give step, description, max_id or raise_by")
	case u.MaxID != nil && u.RaiseBy != nil:
		return Errorf(BadRequest, "max_id and raise_by exclude each other: give one")
	case u.Step != nil && *u.Step < 1:
		return Errorf(BadRequest, "step %d, want at least 1", *u.Step)
	case u.MaxID != nil && *u.MaxID < 1:
		return Errorf(BadRequest, "max_id %d, want at least 1", *u.MaxID)
	case u.RaiseBy != nil && *u.RaiseBy < 1:
		return Errorf(BadRequest, "raise_by %d, want at least 1: max_id only rises", *u.RaiseBy)
	case u.Description != nil:
		return checkDescription(*u.Description)
	}
	return nil
}

// ParseTagDelete reads the body of a request that deletes a tag. The error is
// an [*Error] of code 400.
func ParseTagDelete(body []byte) (d TagDelete, err error) {
	if err := parseJSON(body, &d, `{"tag":"order"}`); err != nil {
		return TagDelete{}, err
	}
	if err := CheckTag(d.Tag); err != nil {
		return TagDelete{}, err
	}
	return d, nil
}

// ParseTagList reads the body of a request for a page of tags, and fills in
// what it leaves out. The error is an [*Error] of code 400.
func ParseTagList(body []byte) (l TagList, err error) {
	if len(body) > 0 {
		if err := parseJSON(body, &l, `{"after":"order","limit":100,"stats":true}`); err != nil {
			return TagList{}, err
		}
	}
	if l.Limit == 0 {
		l.Limit = MaxTags
	}
	if l.Limit < 1 || l.Limit > MaxTags {
		return TagList{}, Errorf(BadRequest, "limit %d, want 1..%d", l.Limit, MaxTags)
	}
	return l, nil
}

// parseJSON reads one JSON object that has no fields unknown to v.
func parseJSON(body []byte, v any, example string) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil && dec.More() {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return Errorf(BadRequest, "the body is no request (%s); want JSON such as %s", excerpt([]byte(err.Error()), 100), example)
	}
	return nil
}
