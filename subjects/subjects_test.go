package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestNamespaceIsOneTokenAndABucketPrefix(t *testing.T) {
	for _, good := range []Namespace{"id", "A-z_0", Namespace(strings.Repeat("x", 32))} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []Namespace{"", "a.b", "a b", "*", ">", "é", Namespace(strings.Repeat("x", 33))} {
		if bad.Check() == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

// tagRe is the grammar of tags as a regular expression: a second,
// independent statement of the tags that CheckTag must accept.
var (
	tagRe      = regexp.MustCompile(`\A[A-Za-z0-9_/=-]+(\.[A-Za-z0-9_/=-]+)*\z`)
	reservedRe = regexp.MustCompile(`\A_natsid(\.|\z)`)
)

var tags = []string{
	"order", "a.b.c", "A/b=c-d_e", strings.Repeat("x", 128), "0",
	"", ".", ".a", "a.", "a..b", "a b", "*", ">", "a.*", "a.>", "é", "a\x00", "a\n", "\x7f",
	strings.Repeat("x", 129), "a,b", "a:b", "$SRV",
	"_natsid", "_natsid.x", "_natsid.w.order", "_natsid..", "_natsids", "_natsid-x", "x._natsid", "_NATSID.x",
}

func FuzzCheckTag(f *testing.F) {
	for _, tag := range tags {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		err := CheckTag(tag)
		if want := len(tag) <= 128 && tagRe.MatchString(tag) && !reservedRe.MatchString(tag); (err == nil) != want {
			t.Fatalf("CheckTag(%q) = %v, want ok = %v", tag, err, want)
		}
		wantBadRequest(t, err)
	})
}

func FuzzParseRuns(f *testing.F) {
	for _, body := range []string{
		"1001", "1001-1100", "1-2\n5\n7-9", "0", "9223372036854775807",
		"", "\n", "1\n", "-1", "2-1", "1-1", "01", "1-", "1-02", "1--2", "a", "9223372036854775808", `{"stream":"X"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		runs, err := ParseRuns(body)
		if err != nil {
			return
		}
		var back []byte
		for _, r := range runs {
			if r.First < 0 || r.Last < r.First || r.Len() <= 0 && r.First != 0 {
				t.Fatalf("ParseRuns(%q) gave run %v", body, r)
			}
			back = AppendRun(back, r.First, r.Last)
		}
		if !bytes.Equal(back, body) {
			t.Fatalf("ParseRuns(%q) reads what would be written %q", body, back)
		}
	})
}

func TestRunsTravelUnchanged(t *testing.T) {
	want := []Run{{1001, 1100}, {7, 7}, {0, 1}, {math.MaxInt64 - 1, math.MaxInt64}}
	var body []byte
	for _, r := range want {
		body = AppendRun(body, r.First, r.Last)
	}
	got, err := ParseRuns(body)
	if err != nil || len(got) != len(want) {
		t.Fatalf("ParseRuns(%q) = %v, %v", body, got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("run %d = %v, want %v", i, got[i], want[i])
		}
	}
	if s := want[0].String(); s != "1001-1100" {
		t.Errorf("String = %q", s)
	}
}

func TestErrorsTravelInHeaders(t *testing.T) {
	tooLarge := Error{Code: BadRequest, Text: "too large", MaxBatch: 100_000}
	full := Error{Code: TooMany, Text: "1024 requests wait", RetryAfter: 150 * time.Millisecond}
	for _, sent := range []Error{tooLarge, full, {Code: NotFound, Text: "no such tag"}} {
		got := ParseError(sent.Headers())
		if got == nil || *got != sent || got.Code.Retry() != (got.Code == TooMany) {
			t.Errorf("got %+v, want %+v; only %d is retried", got, sent, TooMany)
		}
	}
	if ParseError(nil) != nil || ParseError(map[string][]string{HeaderMaxBatch: {"1"}}) != nil {
		t.Error("a reply without a code is no error")
	}
	if got := ParseError(map[string][]string{HeaderErrorCode: {"x"}}); got.Code != Internal || got.Code.Retry() {
		t.Errorf("a code that is not a number = %v, want 500, not to be retried", got)
	}
	for _, odd := range []string{"", "-1", "+1", "01", "1.5", "x", "0", "99999999999999999999"} {
		headers := full.Headers()
		headers[HeaderMaxBatch], headers[HeaderRetryAfter] = []string{odd}, []string{odd}
		if got := ParseError(headers); got.MaxBatch != 0 || got.RetryAfter != 0 {
			t.Errorf("%q: %+v, want neither batch nor wait", odd, got)
		}
	}
}

// wantBadRequest checks that an error can be sent to a caller: code 400, with a
// text that a header can hold.
func wantBadRequest(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != BadRequest || e.Text == "" {
		t.Fatalf("error %v, want code 400 with a text", err)
	}
	for i := range len(e.Text) {
		if c := e.Text[i]; c < ' ' || c > '~' {
			t.Fatalf("error text %q has byte %#x, which a header cannot hold", e.Text, c)
		}
	}
}

func TestLargeNumbersTravelAsStrings(t *testing.T) {
	b, err := json.Marshal(TagInfo{NextID: 9007199254740993})
	if err != nil || !bytes.Contains(b, []byte(`"next_id":"9007199254740993"`)) {
		t.Errorf("%s, %v", b, err)
	}
}
