package subjects

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// MaxTag is the length limit of a tag, in bytes: Leaf's varchar(128).
const MaxTag = 128

// reserved is the prefix of natsid's own keys in the bucket of the marks.
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
			return Errorf(BadRequest, "byte %d of the tag is %s, want A-Z a-z 0-9 - _ / = .",
				i, excerpt([]byte(tag[i:i+1]), 1))
		case i == 0, i == len(tag)-1, tag[i-1] == '.':
			return Errorf(BadRequest, "byte %d of the tag is a dot, which must not be first, last, or next to a dot", i)
		}
	}
	return nil
}

// ParseCount reads from the body of a request how many IDs it asks for. An empty body asks for one. Any other body is
// a decimal 1..limit without sign, leading zero or space; one newline at the end is ignored, for `echo 5 | nats
// request …`. The error is an [*Error] of code [BadRequest]; if the count is above the limit, its MaxBatch is the
// limit.
func ParseCount(body []byte, limit int) (int, error) {
	if len(body) == 0 {
		return 1, nil
	}
	digits := body
	if last := len(digits) - 1; digits[last] == '\n' {
		digits = digits[:last]
	}
	n, ok := parseDecimal(digits, int64(limit))
	if ok && n > 0 {
		return int(n), nil
	}
	if isCount(digits) {
		e := Errorf(BadRequest, "the count is %s, and one request may ask for %d at most", excerpt(body, 24), limit)
		e.MaxBatch = limit
		return 0, e
	}
	return 0, Errorf(BadRequest, "the count is %s, want empty for one ID or a decimal 1..%d without leading zero",
		excerpt(body, 24), limit)
}

// isCount reports whether digits are a count of at least 1, however large.
func isCount(digits []byte) bool {
	other := func(r rune) bool { return r < '0' || r > '9' }
	return len(digits) > 0 && digits[0] != '0' && !bytes.ContainsFunc(digits, other)
}

// BatchThatFits returns how many IDs a reply of so many bytes always has room for,
// whatever their runs are.
func BatchThatFits(size int) int {
	const most = len("\n9223372036854775807") // for one ID; a run of two IDs takes at most twice as much
	return size / most
}

// ParseBusiness reads the business from a snowflake subject: a decimal 0..limit
// without sign or leading zero. The error is an [*Error] of code [BadRequest].
func ParseBusiness(text string, limit int64) (int64, error) {
	b, ok := parseDecimal([]byte(text), limit)
	if !ok {
		return 0, Errorf(BadRequest, "the business is %s, want a decimal 0..%d, the most that the layout holds",
			excerpt([]byte(text), 24), limit)
	}
	return b, nil
}

// parseDecimal reads digits as a decimal 0..limit in canonical form.
func parseDecimal(digits []byte, limit int64) (int64, bool) {
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if n > (limit-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, n <= limit
}

// excerpt quotes at most limit bytes of a caller's text, for an error text: in ASCII, because error texts travel in
// headers.
func excerpt(b []byte, limit int) string {
	if len(b) > limit {
		return fmt.Sprintf("%s and %d bytes more", strconv.QuoteToASCII(string(b[:limit])), len(b)-limit)
	}
	return strconv.QuoteToASCII(string(b))
}
