package subjects

import (
	"strings"
	"time"
)

// TagCreate is the request that creates a tag.
type TagCreate struct {
	Tag         string `json:"tag"`
	Step        int64  `json:"step,omitempty"`  // the fewest IDs that a worker reserves at once; 0 means 1000
	Start       ID     `json:"start,omitempty"` // the first ID; 0 means the lowest that is surely free
	Description string `json:"description,omitempty"`
	// Min is the lowest number, where 0 means 1; Max is the highest, where 0 means no bound. With a period they hold
	// within each period.
	Min ID `json:"min,omitempty"`
	Max ID `json:"max,omitempty"`
	// MaxHole bounds how many IDs a crash of one worker wastes, besides those of unanswered requests; 0 means a
	// hundredth of the tag's numbers.
	MaxHole ID `json:"max_hole,omitempty"`
	// Period is daily, monthly or yearly if the numbers begin again with each day, month or year; "" if they do not.
	// The IDs carry the date: yyyyMMdd × 10^8 + number, yyyyMM × 10^10 + number, or yyyy × 10^12 + number.
	Period string `json:"period,omitempty"`
	// Zone is where the day begins: a name of the IANA database, or an offset such as +08:00; "" is UTC.
	Zone string `json:"zone,omitempty"`
	// Strict makes the IDs rise over all workers: if a request is sent after the answer to another has arrived, its
	// IDs are higher. Other tags' IDs rise roughly, and strictly within one worker. Strict cannot be changed once the
	// tag exists.
	Strict bool `json:"strict,omitempty"`
}

// TagList is the request for a page of tags. The zero value requests the first page.
type TagList struct {
	Tag   string `json:"tag,omitempty"`   // lists this tag alone, if there is one; it excludes After and Limit
	After string `json:"after,omitempty"` // the last tag of the previous page
	Limit int    `json:"limit,omitempty"` // most tags of a page, 1 to 1000; 0 means 1000
}

// TagInfo is a tag as replies show it: one for [Namespace.TagCreate], [Namespace.TagUpdate] and
// [Namespace.TagDelete], and an array in the order of tags, by bytes, for [Namespace.TagList]. A page may be shorter
// than its limit, so that the message stays small; it is empty only past the last tag. Where there are more than 2000
// tags, a page after the first may be up to 2 s old.
type TagInfo struct {
	Tag         string    `json:"tag"`
	Step        int64     `json:"step"`
	NextID      ID        `json:"next_id"` // the lowest ID that no worker has reserved
	Description string    `json:"description"`
	Updated     time.Time `json:"updated"`              // of the last load or change
	Disabled    bool      `json:"disabled"`             // the tag was deleted
	Unservable  string    `json:"unservable,omitempty"` // why the tag's IDs cannot be requested; "" if they can
	MaxBatch    int       `json:"max_batch,omitempty"`  // most IDs a request; 0 is no limit
	Rate        int64     `json:"rate,omitempty"`       // most IDs per second, of all workers together; 0 is no limit
	Throttle    int64     `json:"throttle,omitempty"`   // as Rate, of each tag, set for all at once; 0 is no throttle
	// The following are as in [TagCreate].
	Strict  bool   `json:"strict,omitempty"`
	Min     ID     `json:"min,omitempty"`
	Max     ID     `json:"max,omitempty"`
	MaxHole ID     `json:"max_hole,omitempty"`
	Period  string `json:"period,omitempty"`
	Zone    string `json:"zone,omitempty"`
	// MarkAhead is how far the mark, the tag's next ID in the bucket, is ahead of max_id in the table's row: negative
	// if the mark is behind, nil without a table. NextID is the higher of the two.
	MarkAhead *int64 `json:"mark_ahead,omitempty,string"`
}

// MaxTag is the length limit of a tag, in bytes: Leaf's varchar(128).
const MaxTag = 128

// reserved is the prefix of natsid's own keys in the bucket that holds the next ID of each tag.
const reserved = "_natsid"

// CheckTag returns nil, or an [*Error] of code [BadRequest] that names the fault of the tag. A tag is 1 to 128 bytes
// of A-Z a-z 0-9 - _ / = . with no dot first, last, or next to a dot: so it can end a subject, be a KV key, and be a
// biz_tag of Leaf. It is not _natsid, and does not begin with "_natsid.": such keys are natsid's own.
func CheckTag(tag string) error {
	if tag == "" {
		return Errorf(BadRequest, "the tag is empty: give it as <namespace>.segment.<tag>, "+
			"or in the JSON of a request about tags")
	}
	if tag == reserved || strings.HasPrefix(tag, reserved+".") {
		return Errorf(BadRequest, "the tag is %s or begins with %s., which are keys of natsid's own: choose another",
			reserved, reserved)
	}
	if len(tag) > MaxTag {
		return Errorf(BadRequest, "the tag has %d bytes, want at most %d", len(tag), MaxTag)
	}
	for i := range len(tag) {
		switch c := tag[i]; {
		case isAlnum(c), c == '-', c == '_', c == '/', c == '=':
		case c != '.':
			return Errorf(BadRequest, "byte %d of the tag is %+q, want A-Z a-z 0-9 - _ / = .", i, tag[i:i+1])
		case i == 0, i == len(tag)-1, tag[i-1] == '.':
			return Errorf(BadRequest, "byte %d of the tag is a dot, which must not be first, last, or next to a dot", i)
		}
	}
	return nil
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
