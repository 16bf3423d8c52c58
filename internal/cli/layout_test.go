package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// planned runs the planner as of 2026-11-20, with --epoch unless it is "".
func planned(t *testing.T, c layoutCmd, epoch string) (out string, err error) {
	t.Helper()
	var stdout natstest.Buffer
	s := &session{output: output{stdout: &stdout}}
	s.given = map[string]app.Given{"epoch": {Text: epoch}}
	err = c.plan(s, time.Date(2026, 11, 20, 23, 59, 0, 0, time.FixedZone("", -3600)))
	return stdout.String(), err
}

var article = layoutCmd{Years: 10, Sites: 4, Machines: 100, Businesses: 10, Peak: 100_000}

func TestTheArticlesCompanyIsPlannedAsInTheArticle(t *testing.T) {
	const want = `39+2+7+4+7, ticks of 1ms

 63    59 58                                   20 19    18 17       11 10         7 6          0
┌────────┬───────────────────────────────────────┬────────┬───────────┬────────────┬────────────┐
│ zero 5 │ time                               39 │ site 2 │ machine 7 │ business 4 │ sequence 7 │
└────────┴───────────────────────────────────────┴────────┴───────────┴────────────┴────────────┘

FIELD     BITS  NEED    CAPACITY                HEADROOM
time      39    10      17.4 years              1.7x
site      2     4       4 sites                 1.0x
machine   7     100     128 machines a site     1.3x
business  4     10      16 businesses           1.6x
sequence  7     100000  128000 IDs/s a machine  1.3x

begins   2018-09-21 16:00:00.000 UTC
ends     2036-02-22 13:56:53.888 UTC; workers warn from 2031-02-22 on
largest  576460752303423487, 18 digits; not safe in JavaScript numbers, which go to 2^53: keep IDs as strings there
spare    4 of 63 bits
use      natsid --layout 39+2+7+4+7 --epoch 2018-09-21T16:00:00Z --site N    N is 0 to 3
`
	for _, epoch := range []string{"2018-09-22T00:00:00+08:00", "1537545600000"} {
		if got, err := planned(t, article, epoch); err != nil || got != want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
		}
	}
}

func TestAPlanBeginsToday(t *testing.T) {
	got, err := planned(t, article, "")
	for _, want := range []string{
		"begins   2026-11-21 00:00:00.000 UTC\n", "--layout 39+2+7+4+7 --epoch 2026-11-21T00:00:00Z ",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%v: no %q in\n%s", err, want, got)
		}
	}
}

func TestAPlanThatFitsJavaScriptSaysSo(t *testing.T) {
	got, err := planned(t, layoutCmd{Years: 30, Machines: 50, Peak: 20, Unit: 10 * time.Millisecond}, "")
	for _, want := range []string{
		"37+6+1@10ms, ticks of 10ms\n",
		"machine   6     50    64 machines          1.3x\n",
		"sequence  1     20    200 IDs/s a machine  10.0x\n",
		"largest  17592186044415, 14 digits; safe in JavaScript",
		"spare    19 of 63 bits",
		"use      natsid --layout 37+6+1@10ms --epoch 2026-11-21T00:00:00Z\n",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%v: no %q in\n%s", err, want, got)
		}
	}
}

func TestAPlanThatDoesNotFitSaysWhatDoes(t *testing.T) {
	tooMuch := article
	tooMuch.Years, tooMuch.Peak = 100, 4_000_000
	all := layoutCmd{Years: 1e6, Sites: 1e12, Machines: 1e12, Businesses: 1e12, Peak: 1e12, Unit: time.Second}
	for _, tc := range []struct {
		cmd   layoutCmd
		epoch string
		want  []string
	}{
		{tooMuch, "2026-01-01", []string{"42+2+7+4+12: 67 bits",
			"at most --years 8 or --machines 8 or --businesses 1 or --peak 256000 would fit",
			"natsid layout --years 69 --sites 4 --machines 64 --businesses 8 --peak 2048000 --epoch 2026-01-01"}},
		{all, "", []string{"no need alone", "natsid layout --years ", "--unit 1s"}},
		{article, "2001-01-01", []string{"ended on 2018-06-03", "--epoch", "count from the epoch"}},
	} {
		out, err := planned(t, tc.cmd, tc.epoch)
		if out != "" || err == nil {
			t.Fatalf("%+v: planned\n%s", tc.cmd, out)
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// The command line that is shown as the nearest must work as it stands.
func TestTheNearestPlanCanBeRun(t *testing.T) {
	for _, c := range []string{
		"--years 100 --sites 4 --machines 100 --businesses 10 --peak 4000000 --epoch 2026-01-01",
		"--years 1000000 --sites 1000000000000 --machines 1000000000000 --businesses 1000000000000 " +
			"--peak 1000000000000 --unit 10ms --epoch 2026-01-01",
		"--years 1 --sites 100000 --machines 100000 --peak 1 --unit 1m --epoch 2026-01-01",
	} {
		var out, errs natstest.Buffer
		args := append([]string{"layout"}, strings.Fields(c)...)
		if code := Main(context.Background(), args, &out, &errs); code != 1 || out.String() != "" {
			t.Errorf("%s: exit code %d, %s", c, code, out.String())
		}
		_, nearest, found := strings.Cut(strings.TrimSpace(errs.String()), "fits: natsid ")
		if code := Main(context.Background(), strings.Fields(nearest), &out, &errs); !found || code != 0 {
			t.Errorf("%s: exit code %d, %s", nearest, code, errs.String())
		}
	}
}

func TestALayoutIsDescribed(t *testing.T) {
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"", []string{
			"41+10+12, ticks of 1ms\n",
			"│ zero 1 │ time                                 41 │ machine 10 │ sequence 12 │\n",
			"machine   10    1024 machines\n",
			"ends     2080-07-10 17:30:30.209 UTC; workers warn from 2075-07-10 on\n",
			"epoch 2010-11-04T01:42:54.657Z\n",
		}},
		{"--layout js53", []string{"│ zero   11 │", "largest  9007199254740991, 16 digits; safe"}},
		{"--layout 41+7+6", []string{"largest  18014398509481983, 17 digits; not safe"}},
		{"--layout article", []string{"begins   2018-09-21 16:00:00.000 UTC\n", "128 machines a site", "N is 0 to 3"}},
		{"--layout 1+1+1@1s --epoch 1970-01-01", []string{
			" 63                                                          3 2        1           0\n",
			"│ zero                                                     61 │ time 1 │",
			"begins   1970-01-01", "ends     1970-01-01 00:00:02.000 UTC", "largest  7, 1 digits",
		}},
		{"--layout 61+1+1", []string{"time      61    73067756 years\n", "ends     73071266-12-30 21:31:08.609 UTC"}},
		{"--layout 2+1+60@1m", []string{"2+1+60@1m0s, ticks of 1m0s\n", "19215358410114116 IDs/s"}},
	} {
		var out, errs natstest.Buffer
		code := Main(context.Background(), append([]string{"layout"}, strings.Fields(tc.args)...), &out, &errs)
		for _, want := range tc.want {
			if code != 0 || errs.String() != "" || !strings.Contains(out.String(), want) {
				t.Errorf("%s: exit code %d, %s, no %q in\n%s", tc.args, code, errs.String(), want, out.String())
			}
		}
		if strings.Contains(out.String(), "NEED") {
			t.Errorf("%s: needs that were not given:\n%s", tc.args, out.String())
		}
	}
}

func TestAPlanIgnoresTheLayoutOfTheEnvironment(t *testing.T) {
	t.Setenv("NATSID_LAYOUT", "js53")
	t.Setenv("NATSID_EPOCH", "2026-01-01")
	var out, errs natstest.Buffer
	code := Main(t.Context(), strings.Fields("layout --years 1000 --machines 4 --peak 1000"), &out, &errs)
	for _, want := range []string{"45+2+1, ticks", "begins   2026-01-01"} {
		if code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, %s, no %q in\n%s", code, errs.String(), want, out.String())
		}
	}
}
