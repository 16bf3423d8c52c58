package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// figures is the JSON of natsid bench.
type figures struct {
	echoed
	Interrupted  bool    `json:"interrupted"`
	IDsPerSecond float64 `json:"ids_per_second"`
	IDsUsed      int64   `json:"ids_used"`
	Repeated     int64   `json:"repeated"`
	Echo         *echoed `json:"echo"`
	EchoRatio    float64 `json:"echo_ratio"`
}

type echoed struct {
	Seconds           float64            `json:"seconds"`
	Calls             int64              `json:"calls"`
	CallsPerSecond    float64            `json:"calls_per_second"`
	RequestsPerSecond float64            `json:"requests_per_second"`
	Latency           map[string]float64 `json:"latency"`
	Errors            map[string]int64   `json:"errors"`
}

func figuresIn(t *testing.T, got result) (f figures) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.out), &f); err != nil || got.code != 0 {
		t.Fatalf("exit code %d, %v: %s\n%s", got.code, err, got.out, got.err)
	}
	return f
}

// withoutErrors runs a command, and again if calls failed: a worker on a busy machine may
// be late, and leave for a moment.
func withoutErrors(t *testing.T, args func(try int) []string) (got result) {
	t.Helper()
	for try := range 50 {
		if got = natsid(t, args(try)...); got.code == 0 && !strings.Contains(got.err, ", error ") {
			break
		}
	}
	return got
}

var atMost = regexp.MustCompile(`(?i)at most (\d+)( IDs of tag \S+ are used up.*)?\.\n`)

func TestBenchUsesUpNoMoreIDsThanItSays(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	nats, nc := "--nats="+url, natstest.Connect(t, url)
	for i, flags := range []string{
		"", "--batch=7", "--merge", "--merge --batch=7", "--prefetch=100", "--rate=300", "--rate=300 --merge",
		"--max-ids=2000", "--max-ids=2000 --batch=9", "--max-ids=2000 --merge", "--max-ids=2000 --prefetch=150",
	} {
		t.Run(flags, func(t *testing.T) {
			var tag string
			got := withoutErrors(t, func(try int) []string {
				tag = fmt.Sprintf("tag%d.%d", i, try)
				return append(strings.Fields("bench segment "+tag+" -c4 -d100ms --json "+flags), nats)
			})
			f := figuresIn(t, got)
			reply, err := nc.Request("id.segment."+tag, nil, time.Minute) // sent once, whatever that takes
			if err != nil {
				t.Fatal(err)
			}
			next, err := strconv.ParseInt(string(reply.Data), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if used := next - 1; used > f.IDsUsed || used < f.Calls {
				t.Errorf("%d calls used up %d IDs, and it says %d", f.Calls, used, f.IDsUsed)
			}
			said := atMost.FindStringSubmatch(got.err)
			if said == nil {
				t.Fatalf("it does not say how many IDs it will use up: %s", got.err)
			}
			if most, err := strconv.ParseInt(said[1], 10, 64); err != nil || f.IDsUsed > most && f.Repeated == 0 {
				t.Errorf("it said at most %d, and used up %d", most, f.IDsUsed)
			}
		})
	}
}

func TestBenchFiguresFitTogether(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	near := func(x, y float64) bool { return x > 0.999*y && x < 1.001*y }
	for _, command := range []string{"segment a", "segment b --batch=7", "snowflake --merge", "snowflake --rate=300"} {
		t.Run(command, func(t *testing.T) {
			f := figuresIn(t, withoutErrors(t, func(int) []string {
				return append(strings.Fields("bench "+command+" -c4 -d100ms --json"), nats)
			}))
			batch := 1.0
			if strings.Contains(command, "7") {
				batch = 7
			}
			if f.Calls == 0 || !near(f.CallsPerSecond, float64(f.Calls)/f.Seconds) ||
				!near(f.IDsPerSecond, batch*f.CallsPerSecond) || f.Interrupted {
				t.Errorf("%+v", f)
			}
			if f.Echo == nil || f.Echo.Calls == 0 || f.EchoRatio <= 0 {
				t.Fatalf("echo %+v, ratio %v", f.Echo, f.EchoRatio)
			}
			for _, of := range []echoed{f.echoed, *f.Echo} {
				l := of.Latency
				if l["p50"] <= 0 || l["p50"] > l["p90"] || l["p90"] > l["p99"] || l["p99"] > l["p99_9"] ||
					l["p99_9"] > l["max"] {
					t.Errorf("latencies %v", l)
				}
			}
			if !strings.Contains(command, "merge") && !near(f.RequestsPerSecond, f.CallsPerSecond) {
				t.Errorf("%v requests/s for %v calls/s", f.RequestsPerSecond, f.CallsPerSecond)
			}
		})
	}
	shared := figuresIn(t, withoutErrors(t, func(int) []string {
		return append(strings.Fields("bench snowflake --merge -c 100 -d100ms --json"), nats)
	}))
	if r := shared.RequestsPerSecond; r == 0 || r > shared.CallsPerSecond/2 {
		t.Errorf("%v requests/s for %v calls/s of 100 callers", shared.RequestsPerSecond, shared.CallsPerSecond)
	}
}

func TestBenchPrintsATable(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	got := withoutErrors(t, func(int) []string {
		return append(strings.Fields("bench segment order -c4 -d100ms"), nats)
	})
	form := regexp.MustCompile(`^ +CALLS/S +REQUESTS/S +IDS/S +P50 +P90 +P99 +P99.9 +LONGEST +ERRORS
natsid +\d\S* +\d\S* +\d+( +\d\S*s){5} +0
bare echo +\d\S* +\d\S* +-( +\d\S*s){5} +0
natsid / bare echo, calls/s: \d+\.\d\d \(\d+\.\d\d to \d+\.\d\d in 5 turns\)
\d+ IDs of tag order were used up
$`)
	if got.code != 0 || !form.MatchString(got.out) {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.err, " calls/s, p50 ") {
		t.Errorf("no progress: %s", got.err)
	}
}

func TestBenchCountsErrorsByCodeAndEndsByCtrlCWithTheFiguresSoFar(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	for _, mode := range []string{"--rate=0", "--merge"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tag := "tag" + strings.Trim(mode, "-")
			ctx, ctrlC := context.WithTimeout(t.Context(), time.Minute)
			defer ctrlC()
			var out, errs natstest.Buffer
			code := make(chan int)
			go func() {
				args := []string{"bench", "segment", tag, "-c2", "-d10s", "--json", mode, nats}
				code <- cli.Main(ctx, args, &out, &errs)
			}()
			await := func(text string) {
				for !strings.Contains(errs.String(), text) && ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
			await(" calls/s")
			answered(t, "tag", "delete", tag, nats).want(t, 0)
			await(" error 404: ")
			ctrlC()
			got := result{<-code, out.String(), errs.String()}
			f := figuresIn(t, got)
			if !f.Interrupted || f.Calls == 0 || f.Errors["404"] == 0 {
				t.Errorf("%+v\n%s", f, got.err)
			}
		})
	}
}

func TestBenchOfAnUnknownTagSaysHowToCreateIt(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	natsid(t, "bench", "segment", "order", nats).want(t, 1, "404", "natsid tag create")
}
