package subjects

// MaxRaised is the most tags that one [TagRaise] raises.
const MaxRaised = 100

// TagRaise is the request that raises max_id of every tag, deleted ones included,
// a page at a time. It is for a store that was restored from a backup: By is more
// than the IDs of any tag that were issued since.
type TagRaise struct {
	By    Decimal `json:"by"`              // 1 to MaxRaise
	After string  `json:"after,omitempty"` // the last tag of the page before; "" begins
}

// TagRaised is the answer: the tags that were raised, in their order, as they are
// now. After the last page Tags is empty, and workers that refused segments until
// all tags were raised serve them again.
type TagRaised struct {
	Tags []TagInfo `json:"tags"`
}

const exampleRaise = `{"by":"1000000","after":"order"}`

// ParseTagRaise reads the body of a request that raises tags. The error is an
// [*Error] of code [BadRequest].
func ParseTagRaise(body []byte) (r TagRaise, err error) {
	if err := parseJSON(body, &r, exampleRaise); err != nil {
		return TagRaise{}, err
	}
	return r, r.Check()
}

// Check returns an [*Error] of code [BadRequest] that says what is wrong with
// the request, or nil.
func (r TagRaise) Check() error {
	if r.By < 1 || r.By > MaxRaise {
		return Errorf(BadRequest, "by %d, want 1..%d", r.By, int64(MaxRaise))
	}
	return nil
}
