package cli_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// line runs a command until its output has a line that matches, and returns
// that line.
func line(t *testing.T, match string, args ...string) string {
	t.Helper()
	re := regexp.MustCompile("(?m)^" + match + "$")
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got := answered(t, args...)
		got.want(t, 0, "")
		if found := re.FindString(got.out); found != "" {
			return found
		}
		if time.Now().After(until) {
			t.Fatalf("%q printed\n%s\nwithout %s", args, got.out, match)
		}
	}
}

func TestTheBusiestTagsAreSummedOverAllWorkers(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=w1")
	second := serve(t, "--name=w2", "--nats="+s.url, "--data="+filepath.Join(t.TempDir(), "two"))
	answered(t, "tag", "create", "order", "--step=100", "--nats="+s.url).want(t, 0, "")
	answered(t, "tag", "create", "unused", "--nats="+s.url).want(t, 0, "")
	for range 40 { // both workers get some
		answered(t, "get", "segment", "order", "-n30", "--nats="+s.url).want(t, 0, "")
	}
	sum := line(t, `order +2/2 +100 .*`, "tag", "stats", "--nats="+s.url)
	head := strings.Fields("TAG WORKERS STEP LOADS_BY RECOMMENDED IDS/S LEFT LASTS USED WAITS ERRORS")
	if n := len(regexp.MustCompile(" {2,}").Split(sum, -1)); n != len(head) {
		t.Errorf("%d columns: %s", n, sum)
	}
	if err := second.stop(); err.code != 0 {
		t.Errorf("%+v", err)
	}
	line(t, `order +1/1 +100 .*`, "tag", "stats", "--nats="+s.url)
	answered(t, "get", "segment", "unused", "--nats="+s.url).want(t, 0, "")
	line(t, `unused +1/1 .*`, "tag", "stats", "--nats="+s.url)
	s.stop()
	natsid(t, "tag", "stats", "--nats="+s.url).want(t, 1, "cannot reach NATS")
}

func TestAStrictTagIsListedAndStaysStrict(t *testing.T) {
	t.Parallel()
	s := serve(t)
	nats := "--nats=" + s.url
	answered(t, "tag", "create", "invoice", "--strict", nats).want(t, 0, "")
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	line(t, `invoice .* strict +-`, "tag", "list", nats)
	line(t, `order .* - +-`, "tag", "list", nats)
	for _, tag := range []string{"invoice", "order"} {
		answered(t, "tag", "delete", tag, "-y", nats).want(t, 0, "")
	}
	answered(t, "tag", "create", "invoice", nats).want(t, 0, "")
	line(t, `invoice .* strict +-`, "tag", "list", nats)
	answered(t, "tag", "create", "order", "--strict", nats).want(t, 3, "400", "another name")
}
