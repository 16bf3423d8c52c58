package cli_test

import (
	"strings"
	"testing"
)

const articlePlan = "layout --years 10 --sites 4 --machines 100 --businesses 10 --peak 100000 --epoch "

func TestTheArticlesCompanyIsPlannedAsInTheArticle(t *testing.T) {
	const want = `FIELD     BITS  NEED    CAPACITY
time      39    10      17.4 years
site      2     4       4 sites
machine   7     100     128 machines a site
business  4     10      16 businesses
sequence  7     100000  128000 IDs/s a machine

59 bits, ticks of 1ms, ends 2036-02-22T13:56:53Z
natsid --layout 39+2+7+4+7 --epoch 2018-09-21T16:00:00Z --site N    N is 0 to 3
`
	for _, epoch := range []string{"2018-09-22T00:00:00+08:00", "1537545600000"} {
		if got := natsid(t, strings.Fields(articlePlan+epoch)...); got.code != 0 || got.out != want {
			t.Errorf("%+v, want\n%s", got, want)
		}
	}
}

func TestALayoutIsPlannedOrDescribed(t *testing.T) {
	t.Setenv("NATSID_LAYOUT", "js53") // a plan ignores it
	for args, want := range map[string][]string{
		"": {"time      41    -     69.7 years\n", "53 bits, ticks of 1ms"},
		"--layout leaf": {
			"machine   10    -     1024 machines a site\n", "63 bits", "ends 2080-07-10T17:30:30Z",
			"--epoch 2010-11-04T01:42:54.657Z\n",
		},
		"--layout article":                     {"N is 0 to 3"},
		"--layout 61+1+1":                      {"73067755.8 years", "ends 73071266-12-30T21:31:08Z"},
		"--layout 1+1+1@1s --epoch 1970-01-01": {"ticks of 1s, ends 1970-01-01T00:00:02Z"},
		"--years 1 --machines 1 --peak 1": {
			"natsid --layout 35+1+1 --epoch 20",
		},
		"--years 69 --machines 1024 --peak 4096000 --epoch 2026-01-01": {
			"41+10+12 ",
		},
		"--years 70 --machines 1025 --peak 409600 --unit 10ms --epoch 2026-01-01": {
			"38+11+12@10ms ",
		},
		"--years 30 --sites 3 --machines 100 --businesses 16 --peak 100000 --epoch 2026-01-01": {
			"40+2+7+4+7 ",
		},
	} {
		got := natsid(t, append([]string{"layout"}, strings.Fields(args)...)...)
		for _, w := range want {
			if got.code != 0 || !strings.Contains(got.out, w) {
				t.Errorf("%s: no %q in %+v", args, w, got)
			}
		}
	}
}

func TestAPlanThatDoesNotFitSaysWhy(t *testing.T) {
	for args, want := range map[string]string{
		"--years 100 --sites 4 --machines 100 --businesses 10 --peak 4000000": "42+2+7+4+12: 67 bits, want at most 63",
		"--years 5 --sites 32768 --machines 100000 --peak 1 --unit 1s":        "32 bits for site and machine together",
		"--years 1 --machines 1 --peak 1 --epoch 2001-01-01":                  "would have ended on 20",
		"--years 1 --machines 1 --peak 1 --unit 2m":                           "a tick of 120000 ms",
	} {
		natsid(t, append([]string{"layout"}, strings.Fields(args)...)...).want(t, 2, want)
	}
}
