package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDecodeShowsTheFieldsOfASnowflake(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"2124263042718941184"}, "time      2026-11-21T22:05:50.940Z\nworker    12\nsequence  0\n"},
		{[]string{"4194324557"}, "time      2010-11-04T01:42:55.657Z\nworker    5\nsequence  77\n"},
		{[]string{"0"}, "time      2010-11-04T01:42:54.657Z\nworker    0\nsequence  0\n"},
		{[]string{"9223372036854775807"}, "time      2080-07-10T17:30:30.208Z\nworker    1023\nsequence  4095\n"},
		{[]string{"4194324557", "--epoch=0"}, "time      1970-01-01T00:00:01.000Z\nworker    5\nsequence  77\n"},
		{[]string{"4194324557", "--epoch=2018-09-22"},
			"time      2018-09-22T00:00:01.000Z\nworker    5\nsequence  77\n"},
		{[]string{"4194324557", "--epoch=2018-09-22T00:00:00.5+08:00"},
			"time      2018-09-21T16:00:01.500Z\nworker    5\nsequence  77\n"},
		{[]string{"9007199254740991", "--layout=js53"},
			"time      2080-07-10T17:30:30.208Z\nworker    63\nsequence  63\n"},
		{[]string{"270162187289683973", "--layout=article"}, "time      2026-11-20T16:32:19.282Z\n" +
			"site      1\nmachine   29\nworker    157\nbusiness  0\nsequence  5\n"},
		{[]string{"4194325325", "--layout=39+0+10+4+8@10ms", "--epoch=0"},
			"time      1970-01-01T00:00:10.000Z\nworker    5\nbusiness  3\nsequence  77\n"},
	} {
		if got := natsid(t, append([]string{"decode"}, tc.args...)...); got != (result{0, tc.want, ""}) {
			t.Errorf("%q: %+v, want\n%s", tc.args, got, tc.want)
		}
	}
	natsid(t, "decode", "9223372036854775807", "--layout=article").
		want(t, 1, "not an ID of layout 39+2+7+4+7", "--layout")
	t.Setenv("NATSID_EPOCH", "0")
	if got := natsid(t, "decode", "4194324557"); !strings.Contains(got.out, "1970-01-01T00:00:01.000") {
		t.Errorf("the epoch of the environment: %+v", got)
	}
	t.Setenv("NATSID_LAYOUT", "31+2+9+12@1s")
	natsid(t, "decode", "4194324557").want(t, 2, "31+2+9+12@1s")
	t.Setenv("NATSID_LAYOUT", "31+0+10+0+12@1s")
	if got := natsid(t, "decode", "4194324557"); !strings.Contains(got.out, "1970-01-01T00:16:40.000") {
		t.Errorf("the layout of the environment: %+v", got)
	}
}

func TestServeIssuesInTheLayoutItWasGiven(t *testing.T) {
	t.Parallel()
	s := serve(t, "--layout=31+2+5+4+8@1s", "--epoch=2026-01-01", "--site=0")
	id := strings.TrimSpace(answered(t, "get", "snowflake", "--business=9", "--nats", s.url).out)
	got := natsid(t, "decode", id, "--layout=31+2+5+4+8@1s", "--epoch=2026-01-01")
	if got.want(t, 0, ""); !strings.Contains(got.out, time.Now().UTC().Format("2006-01-02")) ||
		!strings.Contains(got.out, "business  9\n") {
		t.Errorf("it decodes to %s", got.out)
	}
	other := natsid(t, "--nats="+s.url, "--http=", "--data="+filepath.Join(t.TempDir(), "data"))
	other.want(t, 1, "31+2+5+4+8@1s", "41+10+12")
}
