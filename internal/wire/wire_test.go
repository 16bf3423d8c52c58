package wire

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

	"github.com/natsid/natsid/subjects"
)

func TestSubjectsOfANamespace(t *testing.T) {
	ns := subjects.Namespace("id")
	for got, want := range map[string]string{
		ns.Segment("a.b"):              "id.segment.a.b",
		Tag(ns, "id.segment.a.b"):      "a.b",
		ns.Snowflake():                 "id.snowflake",
		ns.SnowflakeOf(7):              "id.snowflake.7",
		Business(ns, "id.snowflake.7"): "7",
		Worker(ns, 12):                 "id.worker.12",
		Service(ns):                    "id",
		SegmentBucket(ns):              "id_segments",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Business(ns, ns.Snowflake()); got != "" {
		t.Errorf("business of the bare subject = %q, want none", got)
	}
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

func TestACountAboveTheLimitIsRefusedWithTheLimit(t *testing.T) {
	for body, want := range map[string]int{
		"100001": 100_000, "100001\n": 100_000, "99999999999999999999": 100_000,
		"0": 0, "-1": 0, "0100001": 0, "100001x": 0, "x100001": 0, "\n": 0, "1e9": 0,
	} {
		_, err := ParseCount([]byte(body), 100_000)
		if e, ok := errors.AsType[*subjects.Error](err); !ok || e.MaxBatch != want {
			t.Errorf("%q: %+v, want MaxBatch %d", body, e, want)
		}
	}
}

func TestABatchThatFitsDoesSoWhateverItsRuns(t *testing.T) {
	for _, size := range []int{1024, 1 << 20} {
		for _, run := range []int64{1, 2, 3} {
			n, body := int64(BatchThatFits(size)), []byte(nil)
			for left := n; left > 0; left -= run {
				body = subjects.AppendRun(body, math.MaxInt64-subjects.ID(min(run, left))+1, math.MaxInt64)
			}
			if len(body) > size || n < int64(size)/20 {
				t.Errorf("%d IDs in runs of %d take %d bytes of %d", n, run, len(body), size)
			}
		}
	}
}

func TestAnAgeOfPrefetchedIDsIsBounded(t *testing.T) {
	for _, good := range []string{"1ns", "2s", "1m0s", subjects.MaxPrefetchAge.String()} {
		if err := CheckPrefetch(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "0", "0s", "-1s", "2", "s", "0.1ns", (subjects.MaxPrefetchAge + 1).String(), "99999999999h", "2s ", "\x00",
		strings.Repeat("1", 1<<20),
	} {
		err := CheckPrefetch(bad)
		wantBadRequest(t, err)
		if err == nil || !strings.Contains(err.Error(), subjects.MaxPrefetchAge.String()) || len(err.Error()) > 300 {
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
	e, ok := errors.AsType[*subjects.Error](err)
	if !ok || e.Code != subjects.BadRequest || e.Text == "" {
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
		if subjects.CheckTag(c.Tag) != nil || len(c.Description) > 256 || c.Step == 0 {
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
		`{"tag":"order","step":2000}`, `{"tag":"order","next_id":"5000001","force":true}`,
		`{"tag":"order","raise_by":7}`,
		`{"tag":"order","next_id":9223372036854775807}`, `{"tag":"order","description":""}`, `{"tag":"order"}`,
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
		if err == nil && subjects.CheckTag(d.Tag) != nil {
			t.Fatalf("ParseTagDelete(%q) = %+v", body, d)
		}
	})
}
