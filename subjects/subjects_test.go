package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSubjectsOfANamespace(t *testing.T) {
	ns := Namespace("id")
	for got, want := range map[string]string{
		ns.Segment("a.b"):             "id.segment.a.b",
		ns.Tag("id.segment.a.b"):      "a.b",
		ns.Snowflake():                "id.snowflake",
		ns.SnowflakeOf("7"):           "id.snowflake.7",
		ns.Business("id.snowflake.7"): "7",
		ns.Worker(12):                 "id.worker.12",
		ns.Service():                  "id",
		ns.SegmentBucket():            "id_segments",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := ns.Business(ns.Snowflake()); got != "" {
		t.Errorf("business of the bare subject = %q, want none", got)
	}
}

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

var countRe = regexp.MustCompile(`\A[1-9][0-9]*\n?\z`)

var counts = []string{
	"", "1", "5\n", "100000", "9999",
	"0", "-1", "+1", "007", "1e3", "5\n5", "5\n\n", "\n", " 5", "5 ",
	"99999999999999999999", "100001", "0x1", "٣", "1.0",
}

func FuzzParseCount(f *testing.F) {
	for _, c := range counts {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const limit = 100_000
		want := int64(1)
		if len(body) > 0 {
			want = 0
			if n, ok := new(big.Int).SetString(strings.TrimSuffix(string(body), "\n"), 10); ok &&
				countRe.Match(body) && n.Cmp(big.NewInt(limit)) <= 0 {
				want = n.Int64()
			}
		}
		n, err := ParseCount(body, limit)
		if int64(n) != want || (err == nil) != (want > 0) {
			t.Fatalf("ParseCount(%q) = %d, %v, want %d", body, n, err, want)
		}
		wantBadRequest(t, err)
	})
}

func FuzzParseBusiness(f *testing.F) {
	for _, b := range []string{"0", "15", "16", "", "-1", "00", "01", "a", "1.1", "9223372036854775808"} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBusiness(text, 15)
		want, werr := strconv.ParseUint(text, 10, 64)
		ok := werr == nil && want <= 15 && strconv.FormatUint(want, 10) == text
		if (err == nil) != ok || ok && uint64(b) != want {
			t.Fatalf("ParseBusiness(%q) = %d, %v", text, b, err)
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

func TestACountAboveTheLimitIsRefusedWithTheLimit(t *testing.T) {
	for body, want := range map[string]int{
		"100001": 100_000, "100001\n": 100_000, "99999999999999999999": 100_000,
		"0": 0, "-1": 0, "0100001": 0, "100001x": 0, "x100001": 0, "\n": 0, "1e9": 0,
	} {
		_, err := ParseCount([]byte(body), 100_000)
		if e, ok := errors.AsType[*Error](err); !ok || e.MaxBatch != want {
			t.Errorf("%q: %+v, want MaxBatch %d", body, e, want)
		}
	}
}

func TestABatchThatFitsDoesSoWhateverItsRuns(t *testing.T) {
	for _, size := range []int{1024, 1 << 20} {
		for _, run := range []int64{1, 2, 3} {
			n, body := int64(BatchThatFits(size)), []byte(nil)
			for left := n; left > 0; left -= run {
				body = AppendRun(body, math.MaxInt64-ID(min(run, left))+1, math.MaxInt64)
			}
			if len(body) > size || n < int64(size)/20 {
				t.Errorf("%d IDs in runs of %d take %d bytes of %d", n, run, len(body), size)
			}
		}
	}
}

func TestAnAgeOfPrefetchedIDsIsBounded(t *testing.T) {
	for _, good := range []string{"1ns", "2s", "1m0s", MaxPrefetchAge.String()} {
		if err := CheckPrefetch(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "0", "0s", "-1s", "2", "s", "0.1ns", (MaxPrefetchAge + 1).String(), "99999999999h", "2s ", "\x00",
		strings.Repeat("1", 1<<20),
	} {
		err := CheckPrefetch(bad)
		wantBadRequest(t, err)
		if err == nil || !strings.Contains(err.Error(), MaxPrefetchAge.String()) || len(err.Error()) > 300 {
			t.Errorf("%.40q: %v, want the bound, shortly", bad, err)
		}
	}
}

func TestALongBodyIsNotSentBack(t *testing.T) {
	_, err := ParseCount(bytes.Repeat([]byte{0xff}, 1<<20), 10)
	wantBadRequest(t, err)
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("error text has %d bytes", len(err.Error()))
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

func FuzzParseTagCreate(f *testing.F) {
	for _, body := range []string{
		`{"tag":"order"}`, `{"tag":"a","start":7}`,
		`{"tag":"order","step":5,"start":"9007199254740993","description":"d"}`,
		"", "null", "[]", `{"tag":"a b"}`, `{"tag":"a","what":1}`, `{"tag":"a"}{}`,
		`{"tag":"a","step":1.5}`, `{"tag":"a","start":"x"}`,
		`{"tag":"a","description":"` + strings.Repeat("d", 257) + `"}`, "{\"tag\":\"\xff\n\"}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseTagCreate(body)
		wantBadRequest(t, err)
		if err != nil {
			return
		}
		if CheckTag(c.Tag) != nil || len(c.Description) > 256 || c.Step == 0 {
			t.Fatalf("ParseTagCreate(%q) = %+v", body, c)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseTagCreate(again)
		if err != nil || back.Tag != c.Tag || back.Step != c.Step || back.Start != c.Start {
			t.Fatalf("%s reads as %+v, %v", again, back, err)
		}
	})
}

func FuzzParseTagList(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"after":"a","limit":10}`, `{"limit":1001}`, `{"limit":-1}`, `{"tag":"a"}`, `{"tag":" "}`,
		`{"tag":"a","limit":1}`, "null", "x",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := ParseTagList(body)
		wantBadRequest(t, err)
		if err == nil && (l.Limit < 1 || l.Limit > MaxTags) {
			t.Fatalf("ParseTagList(%q) = %+v", body, l)
		}
	})
}

// FuzzParseTagChange guards changes and raises of tags: an accepted one passes its own check, and is read again as
// it is written.
func FuzzParseTagChange(f *testing.F) {
	for _, body := range []string{
		`{"tag":"order","step":2000}`, `{"tag":"order","max_id":"5000001","force":true}`,
		`{"tag":"order","raise_by":7}`,
		`{"tag":"order","max_id":9223372036854775807}`, `{"tag":"order","description":""}`, `{"tag":"order"}`,
		"", "null", "[]", `{"tag":"a b"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := ParseTagUpdate(body)
		wantBadRequest(t, err)
		if err == nil {
			again, _ := json.Marshal(u)
			if back, err := ParseTagUpdate(again); err != nil || back.Tag != u.Tag {
				t.Fatalf("%q: %s reads as %+v, %v", body, again, back, err)
			}
		}
		d, err := ParseTagDelete(body)
		wantBadRequest(t, err)
		if err == nil && CheckTag(d.Tag) != nil {
			t.Fatalf("ParseTagDelete(%q) = %+v", body, d)
		}
	})
}

func TestLargeNumbersTravelAsStrings(t *testing.T) {
	b, err := json.Marshal(TagInfo{MaxID: 9007199254740993})
	if err != nil || !bytes.Contains(b, []byte(`"max_id":"9007199254740993"`)) {
		t.Errorf("%s, %v", b, err)
	}
}
