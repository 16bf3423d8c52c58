//go:build unix

package soak

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/conformance/internal/adapter"
	"github.com/natsid/natsid/conformance/internal/contract"
)

// A call is one that a client has made.
type call struct {
	client string
	kind   kind
	result string
	fails  string // the kind of its error; "" for none
}

// both are a client and a language without one.
func both(out *bytes.Buffer) Config {
	clients := []Client{{Name: "Go", Profile: contract.Full}, {Name: "C", Profile: contract.Wire}}
	return Config{Out: out, Clients: clients}
}

func judged(t *testing.T, calls ...call) (table string, err error) {
	t.Helper()
	var out bytes.Buffer
	j := newJudge(t.TempDir())
	j.enter("kill")
	for _, c := range calls {
		var failure error
		if c.fails != "" {
			f := &adapter.Failure{}
			f.Data.Kind = c.fails
			failure = f
		}
		if err := j.end(j.begin(c.client, c.kind), json.RawMessage(c.result), failure); err != nil {
			t.Fatal(err)
		}
	}
	err = j.verdict(both(&out))
	return out.String(), err
}

func TestWhatIsBrokenIsSaid(t *testing.T) {
	good := []call{
		{"Go", ofLoose, `{"id":"1"}`, ""}, {"C", ofLoose, `{"runs":[["2","101"]]}`, ""},
		{"Go", ofStrict, `{"ids":["1","2"],"kinds":{}}`, ""}, {"C", ofStrict, `{"id":"3"}`, ""},
		{"Go", ofFlakes, `{"id":"1"}`, ""}, // of another kind than the tag's
	}
	for name, tc := range map[string]struct {
		more []call
		want string // part of the error, "" for none
	}{
		"nothing":                         {nil, ""},
		"an ID that another language got": {[]call{{"Go", ofLoose, `{"id":"50"}`, ""}}, "1 IDs were given twice"},
		"a run that another language got": {[]call{{"C", ofLoose, `{"runs":[["100","103"]]}`, ""}}, "2 IDs were given"},
		"a snowflake":                     {[]call{{"C", ofFlakes, `{"id":"1"}`, ""}}, "given twice"},
		"a strict ID below another language's": {
			[]call{{"Go", ofStrict, `{"id":"9"}`, ""}, {"C", ofStrict, `{"id":"8"}`, ""}},
			"1 strict IDs came too late",
		},
		"a call of a client": {[]call{{"Go", ofLoose, ``, "Deadline"}}, "Go saw 1 x Deadline"},
		"calls of a burst": {
			[]call{{"Go", ofLoose, `{"ids":[],"kinds":{"Busy":2}}`, ""}}, "Go saw 2 x Busy",
		},
		"a call of a language without a client": {[]call{{"C", ofLoose, ``, "Deadline"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := judged(t, append(good, tc.more...)...)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q\n%s", err, tc.want, table)
			}
		})
	}
}

func TestAClientThatDrawsNothingFails(t *testing.T) {
	_, err := judged(t, call{"Go", ofLoose, `{"id":"1"}`, ""})
	if err == nil || !strings.Contains(err.Error(), "C drew no ID") {
		t.Error(err)
	}
}

func TestTheTableCountsCallsForTheirFault(t *testing.T) {
	var out bytes.Buffer
	j := newJudge(t.TempDir())
	before := j.begin("Go", ofLoose)
	before.at = before.at.Add(time.Hour) // it takes no time, however busy the machine is
	j.enter("kill")
	during := j.begin("C", ofLoose)
	if err := j.end(before, json.RawMessage(`{"id":"1"}`), nil); err != nil {
		t.Fatal(err)
	}
	j.enter(calmly)
	during.at = time.Now().Add(-1500 * time.Millisecond)
	if err := j.end(during, json.RawMessage(`{"id":"2"}`), nil); err != nil {
		t.Fatal(err)
	}
	if err := j.verdict(both(&out)); err != nil {
		t.Error(err)
	}
	want := regexp.MustCompile(`(?m)^kill +\| +1 +0 +0\.00 s \| +1 +0 +[1-9]\.\d\d s$`)
	if !want.MatchString(out.String()) {
		t.Errorf("the table is\n%s\nwant it to have %v", &out, want)
	}
}
