package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestBenchMeasuresNatsidBesideBareRequests(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	form := regexp.MustCompile(`^REQUEST +IDS/S +P50 +P99 +P99.9 +ERRORS
natsid +\d\S*( +\d\S*s){3} +\d+
bare +\d\S*( +\d\S*s){3} +\d+
(the last error: .*\n)?$`)
	if got := answered(t, "bench", "segment", "order", "-c4", "-d50ms", nats); !form.MatchString(got.out) {
		t.Errorf("%+v", got)
	}
	for _, args := range []string{"bench segment order", "bench snowflake --merge"} {
		got := answered(t, append(strings.Fields(args+" -c4 -d50ms --json"), nats)...)
		var f struct {
			figures
			Bare figures `json:"bare"`
		}
		if err := json.Unmarshal([]byte(got.out), &f); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		for _, of := range []figures{f.figures, f.Bare} {
			if of.PerSecond <= 0 || of.P50 <= 0 || of.P50 > of.P99 || of.P99 > of.P999 || of.Calls == 0 {
				t.Errorf("%s: %+v", args, of)
			}
		}
	}
}

// figures are those of natsid, or of bare requests.
type figures struct {
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
	P999      float64 `json:"p99_9"`
	Calls     int64   `json:"calls"`
}

func TestBenchOfAnUnknownTagSaysHowToCreateIt(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	answered(t, "bench", "segment", "order", nats).want(t, 3, "404", "natsid tag create")
}
