package kvstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// An entry is the value of a tag's key.
type entry struct {
	Mark        int64  `json:"mark"`           // no ID below it is ever reserved again
	Seen        int64  `json:"seen,omitempty"` // highest max_id that was ever read from a guarded table
	Step        int64  `json:"step"`
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Least       int64  `json:"least,omitempty"` // no ID below it is issued, not even one already loaded
	// Tokens are those of the latest writes. An entry that an operator put has none.
	Tokens attempt.Tokens `json:"tokens,omitempty"`
	First  string         `json:"first,omitempty"` // era in which the tag was created, until it is loaded
	Record segment.Record `json:"record,omitzero"`
	Rules  segment.Rules  `json:"rules,omitzero"`
}

func (e entry) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // impossible: integers, strings and a bool
	}
	return b
}

// decode decodes an entry of a bucket.
func decode(bucket string, kve buckets.Entry) (e entry, err error) {
	err = json.Unmarshal(kve.Value, &e)
	if err == nil && (e.Mark < 1 || e.Step < 1) {
		err = errors.New("mark and step must be positive")
	}
	if err != nil {
		return entry{}, fmt.Errorf("kvstore: the entry %s of bucket %s is damaged; replace it with `nats kv put`, "+
			"its mark above every ID that any worker loaded: %w", kve.Key, bucket, err)
	}
	return e, nil
}

// tag returns the entry as a tag of a store.
func (e entry) tag(name string, updated time.Time) segment.Tag {
	return segment.Tag{
		Name: name, Step: e.Step, MaxID: e.Mark, Least: e.Least, Description: e.Description, Disabled: e.Disabled,
		Updated: updated.UTC(), Rules: e.Rules,
	}
}

// set makes the entry that of a tag, and keeps what a tag does not have.
func (e *entry) set(t segment.Tag) {
	e.Mark, e.Least, e.Step, e.Description, e.Disabled = t.MaxID, t.Least, t.Step, t.Description, t.Disabled
	e.Rules = t.Rules
}

// mark returns the entry as a mark that guards a table.
func (e entry) mark(kve buckets.Entry) segment.Mark {
	return segment.Mark{
		High: e.Mark, Seen: e.Seen, Least: e.Least, Step: e.Step, Description: e.Description, Disabled: e.Disabled,
		Record: e.Record, Rules: e.Rules, Revision: kve.Revision, Tokens: string(e.Tokens), Updated: kve.Created.UTC(),
	}
}
