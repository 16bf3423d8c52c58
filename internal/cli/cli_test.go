package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

func TestMain(m *testing.M) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "NATS") {
			os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// A result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// natsid runs a command line to its end.
func natsid(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out, errs natstest.Buffer
	code := cli.Main(ctx, args, &out, &errs)
	if ctx.Err() != nil {
		t.Errorf("%q does not end", args)
	}
	return result{code, out.String(), errs.String()}
}

// want checks a result: the exit code, and words on standard error; "" wants
// none there.
func (r result) want(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code || code != 0 && r.out != "" {
		t.Errorf("exit code %d, want %d; standard output %q, standard error %q", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if w == "" && r.err != "" || !strings.Contains(r.err, w) {
			t.Errorf("standard error %q, want %q", r.err, w)
		}
	}
}

// A served natsid runs until stop is called, at the end of the test if not before.
type served struct {
	url  string
	line string // the ready line
	data string
	stop func() result
}

var readyURL = regexp.MustCompile(`^natsid is ready on (\S+) \(`)

// serve starts natsid, on a free port and a new directory unless flags say
// otherwise, and returns once it says that it is ready.
func serve(t *testing.T, args ...string) served {
	t.Helper()
	s := served{data: filepath.Join(t.TempDir(), "data")}
	common := []string{"--listen=127.0.0.1:0", "--http=", "--data=" + s.data, "--max-clock-skew=1ms", "--log-level=warn"}
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs natstest.Buffer
	var code int
	done := make(chan struct{})
	go func() {
		defer close(done)
		code = cli.Main(ctx, append(common, args...), &out, &errs)
	}()
	s.stop = sync.OnceValue(func() result {
		cancel()
		<-done
		return result{code, out.String(), errs.String()}
	})
	t.Cleanup(func() { s.stop() })
	for until := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "\n"); time.Sleep(2 * time.Millisecond) {
		select {
		case <-done:
			t.Fatalf("natsid %q ended: %+v", args, s.stop())
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("natsid %q is not ready: %s", args, errs.String())
		}
	}
	s.line = out.String()
	if m := readyURL.FindStringSubmatch(s.line); m != nil {
		s.url = m[1]
	} else {
		t.Fatalf("the ready line is %q", s.line)
	}
	return s
}

// startServer starts a nats-server without natsid.
func startServer(t *testing.T) *natsembed.Server {
	t.Helper()
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	return srv
}

func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// nowhere is an address on which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	return "nats://" + addr
}

func TestGetPrintsRunsExactlyAsTheWireHasThem(t *testing.T) {
	nats := "--nats=" + serve(t).url
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "segment", "order"}, "1\n"},
		{[]string{"get", "segment", "order", "-n", "100"}, "2-101\n"},
		{[]string{"get", "segment", "order", "--n=1"}, "102\n"},
		{[]string{"get", "segment", "-n5", "a/b=c.d"}, "1-5\n"},
	} {
		if got := natsid(t, append(tc.args, nats)...); got != (result{0, tc.want, ""}) {
			t.Errorf("%q: %+v, want %q", tc.args, got, tc.want)
		}
	}
	for n := range 3 {
		got := natsid(t, "get", "snowflake", "-n", strconv.Itoa(n+1), nats)
		var sum int64
		runs, err := subjects.ParseRuns([]byte(strings.TrimSuffix(got.out, "\n")))
		for _, r := range runs {
			sum += r.Len()
		}
		if got.want(t, 0, ""); err != nil || sum != int64(n)+1 {
			t.Errorf("%d snowflakes: %q, %v", n+1, got.out, err)
		}
		decoded := natsid(t, "decode", strconv.FormatInt(runs[0].First, 10))
		if decoded.want(t, 0, ""); !strings.Contains(decoded.out, time.Now().UTC().Format("2006-01-02")) {
			t.Errorf("it decodes to %s", decoded.out)
		}
	}
}

func TestWhatAWorkerRefusesIsExitCode1WithItsReason(t *testing.T) {
	nats := "--nats=" + serve(t, "--no-auto-create-tags", "--max-batch=10").url
	natsid(t, "get", "segment", "nobody", nats).want(t, 1, "404", "natsid tag create")
	natsid(t, "get", "snowflake", "-n", "11", nats).want(t, 1, "400", "1..10")
	natsid(t, "tag", "create", "order", "--step=99999999999999", nats).want(t, 1, "400", "step")
	natsid(t, "get", "snowflake", "--namespace=other", nats).want(t, 1, "namespace", "other.snowflake")
}

func TestTagsAreMadeAndListed(t *testing.T) {
	nats := "--nats=" + serve(t).url
	if got := natsid(t, "tag", "create", "order", nats); got != (result{0, "order: next ID 1, step 1000\n", ""}) {
		t.Errorf("%+v", got)
	}
	if got := natsid(t, "tag", "create", "order.eu", "--step=50", "--start=9007199254740993", "--desc=of\n Europe", nats); got.out != "order.eu: next ID 9007199254740993, step 50\n" {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "create", "order", nats).want(t, 1, "exists")
	list := natsid(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG +MAX_ID +STEP +UPDATED +DESCRIPTION`, `order +1 +1000 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d *`, `order\.eu +9007199254740993 +50 .* of Europe`) {
		t.Errorf("listed\n%s", list.out)
	}
	if got := natsid(t, "get", "segment", "order.eu", nats); got.out != "9007199254740993\n" {
		t.Errorf("%+v", got)
	}
}

func TestTagsAreChangedAndDeleted(t *testing.T) {
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	natsid(t, "tag", "create", "order", nats).want(t, 0, "")
	if got := natsid(t, "tag", "update", "order", "--step=50", "--desc=all orders", "--max-id=5001", nats); got != (result{0, "order: next unreserved ID 5001, step 50\n", ""}) {
		t.Errorf("%+v", got)
	}
	if got := natsid(t, "get", "segment", "order", nats); got.out != "5001\n" {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "update", "order", "--max-id=5000", nats).want(t, 1, "400", "only rises")
	natsid(t, "tag", "update", "order", "--raise-by=1000000000000", "--desc=", nats).want(t, 0, "")
	list := natsid(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG .*`, `order +1000000005\d\d\d +50 .*\d *`) {
		t.Errorf("listed\n%s", list.out)
	}
	if got := natsid(t, "tag", "delete", "order", nats); !strings.HasPrefix(got.out, "order: deleted; created again, it continues from 1000000005") {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "order", nats).want(t, 1, "404", "deleted", "natsid tag create")
	natsid(t, "tag", "update", "order", "--step=5", nats).want(t, 1, "404", "deleted")
	natsid(t, "tag", "delete", "nobody", nats).want(t, 1, "404", "no such tag")
}

func TestOnlyTagsOfThePatternAreMadeOnFirstUse(t *testing.T) {
	for name, args := range map[string][]string{"flag": {"--auto-create-tags=tmp.*"}, "environment": nil} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("NATSID_AUTO_CREATE_TAGS", "tmp.*")
			}
			nats := "--nats=" + serve(t, args...).url
			natsid(t, "get", "segment", "tmp.a.b", nats).want(t, 0, "")
			for _, tag := range []string{"order", "tmp", "tmp.a/b", "xtmp.a"} {
				natsid(t, "get", "segment", tag, nats).want(t, 1, "404", "natsid tag create")
			}
		})
	}
}

// matchLines reports whether the text has exactly these lines, by pattern.
func matchLines(text string, patterns ...string) bool {
	return regexp.MustCompile(`^` + strings.Join(patterns, `\n`) + `\n$`).MatchString(text)
}

func TestWorkersAreListedLiveOrFree(t *testing.T) {
	srv := startServer(t)
	nats := "--nats=" + srv.ClientURL()
	first, second := serve(t, nats, "--name=first"), serve(t, nats, "--name=second")
	const live, free = ` +live +[-\d]+ [:\d]+ +[+-]\d+ms +[-\d]+ [:\d]+ +[-\d]+ [:\d]+`, ` +free +- +- +[-\d]+ [:\d]+ +[-\d]+ [:\d]+`
	list := func(want string, args ...string) {
		t.Helper()
		got := natsid(t, append([]string{"workers", nats}, args...)...)
		if got.want(t, 0, ""); !strings.HasPrefix(got.out, "NUMBER") || !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("%q: listed\n%s, want %s", args, got.out, want)
		}
	}
	list(`first` + live)
	list(`second` + live)
	first.stop().want(t, 0)
	list(`^[^\n]*\n\d+ +second` + live + `\n$`)
	list(`first`+free, "--all")
	second.stop()
	list(`^[^\n]*\n$`)
}

func TestWorkersShowWhoseClockIsWrong(t *testing.T) {
	js := jetStream(t, startServer(t).ClientURL())
	registry := kvregistry.New(js, kvregistry.Config{History: "id_history", Workers: "id_workers", LeaseTTL: 30 * time.Second})
	now := time.Now().UnixMilli()
	for w, behind := range []int64{3, 1234, -400_000, 0} {
		if _, err := registry.Write(t.Context(), w, workerid.Record{Instance: "a", Token: "t", Until: now + 1000}); err != nil {
			t.Fatal(err)
		}
		if err := registry.Report(t.Context(), w, workerid.Heartbeat{Instance: "a", Time: time.Now().UnixMilli() - behind, Since: now}); err != nil {
			t.Fatal(err)
		}
	}
	ahead := time.Date(2061, 2, 3, 4, 5, 6, 0, time.UTC)
	if _, err := registry.Write(t.Context(), 4, workerid.Record{Instance: "future", Token: "t", Reported: ahead.UnixMilli(), Until: ahead.UnixMilli() + 60_000}); err != nil {
		t.Fatal(err)
	}
	got := natsid(t, "workers", "--nats", js.Conn().ConnectedUrl())
	const dates = ` +[-\d]+ [:\d]+ +[-\d]+ [:\d]+`
	if got.want(t, 0, ""); !matchLines(got.out, `NUMBER +INSTANCE +STATE +SINCE +OFFSET +REPORTED +UNTIL`,
		`0 +a +live +[-\d]+ [:\d]+ +-\d+ms`+dates, `1 +a +live +[-\d]+ [:\d]+ +-1\.[23]s`+dates,
		`2 +a +live +[-\d]+ [:\d]+ +\+400\.0s`+dates, `3 +a +live +[-\d]+ [:\d]+ +[+-]\d+ms`+dates,
		`4 +future +blocked +- +- +2061-02-03 04:05:06 +2061-02-03 04:06:06`) {
		t.Errorf("listed\n%s", got.out)
	}
}

func TestLookingForWorkersMakesNoBucket(t *testing.T) {
	srv := startServer(t)
	js := jetStream(t, srv.ClientURL())
	natsid(t, "workers", "--nats", srv.ClientURL()).want(t, 1, "no natsid has run")
	// Half made: one whose heartbeats never end would be a curse.
	if _, err := buckets.New(js, buckets.Config{Name: "id_history"}).Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	natsid(t, "workers", "--nats", srv.ClientURL())
	for name := range js.KeyValueStoreNames(t.Context()).Name() {
		if name != "id_history" {
			t.Errorf("the bucket %s was made", name)
		}
	}
}

func TestDecodeTakesASnowflakeApart(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"2124263042718941184"}, "time      2026-11-21 22:05:50.940 UTC\nworker    12\nsequence  0\n"},
		{[]string{"4194324557"}, "time      2010-11-04 01:42:55.657 UTC\nworker    5\nsequence  77\n"},
		{[]string{"0"}, "time      2010-11-04 01:42:54.657 UTC\nworker    0\nsequence  0\n"},
		{[]string{"9223372036854775807"}, "time      2080-07-10 17:30:30.208 UTC\nworker    1023\nsequence  4095\n"},
		{[]string{"4194324557", "--epoch=0"}, "time      1970-01-01 00:00:01.000 UTC\nworker    5\nsequence  77\n"},
		{[]string{"4194324557", "--epoch=2018-09-22"}, "time      2018-09-22 00:00:01.000 UTC\nworker    5\nsequence  77\n"},
		{[]string{"4194324557", "--epoch=2018-09-22T00:00:00.5+08:00"}, "time      2018-09-21 16:00:01.500 UTC\nworker    5\nsequence  77\n"},
		{[]string{"9007199254740991", "--layout=js53"}, "time      2080-07-10 17:30:30.208 UTC\nworker    63\nsequence  63\n"},
		{[]string{"270162187289683973", "--layout=article"}, "time      2026-11-20 16:32:19.282 UTC\nsite      1\nmachine   29\nworker    157\nbusiness  0\nsequence  5\n"},
		{[]string{"4194325325", "--layout=39+0+10+4+8@10ms", "--epoch=0"}, "time      1970-01-01 00:00:10.000 UTC\nworker    5\nbusiness  3\nsequence  77\n"},
	} {
		if got := natsid(t, append([]string{"decode"}, tc.args...)...); got != (result{0, tc.want, ""}) {
			t.Errorf("%q: %+v, want\n%s", tc.args, got, tc.want)
		}
	}
	natsid(t, "decode", "9223372036854775807", "--layout=article").want(t, 1, "no ID of layout 39+2+7+4+7", "--layout")
	t.Setenv("NATSID_EPOCH", "0")
	if got := natsid(t, "decode", "4194324557"); !strings.Contains(got.out, "1970-01-01 00:00:01.000") {
		t.Errorf("the epoch of the environment: %+v", got)
	}
	t.Setenv("NATSID_LAYOUT", "31+2+9+12@1s")
	natsid(t, "decode", "4194324557").want(t, 2, "31+2+9+12@1s")
	t.Setenv("NATSID_LAYOUT", "31+0+10+0+12@1s")
	if got := natsid(t, "decode", "4194324557"); !strings.Contains(got.out, "1970-01-01 00:16:40.000") {
		t.Errorf("the layout of the environment: %+v", got)
	}
}

func TestServeIssuesInTheLayoutItWasGiven(t *testing.T) {
	s := serve(t, "--layout=31+2+5+4+8@1s", "--epoch=2026-01-01", "--site=0")
	id := strings.TrimSpace(natsid(t, "get", "snowflake", "--nats", s.url).out)
	got := natsid(t, "decode", id, "--layout=31+2+5+4+8@1s", "--epoch=2026-01-01")
	if got.want(t, 0, ""); !strings.Contains(got.out, time.Now().UTC().Format("2006-01-02")) {
		t.Errorf("it decodes to %s", got.out)
	}
	natsid(t, "--nats="+s.url, "--http=", "--data="+filepath.Join(t.TempDir(), "data")).want(t, 1, "31+2+5+4+8@1s", "41+10+12")
}

func TestVersionNamesTheProgramAndItsBuild(t *testing.T) {
	if got := natsid(t, "version"); got.code != 0 || !regexp.MustCompile(`^natsid \d+\.\d+\.\d+\S* \(go1\.\S+, \w+/\w+\)\n$`).MatchString(got.out) {
		t.Errorf("%+v", got)
	}
}

func TestACommandCalledWronglyIsExitCode2(t *testing.T) {
	data := "--data=" + filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"bogus"},
		{"--bogus"},
		{"get"},
		{"tag"},
		{"get", "segment"},
		{"get", "segment", "a", "b"},
		{"get", "segment", "order", "-n", "0"},
		{"get", "segment", "order", "-n", "-1"},
		{"get", "segment", "order", "-n", "x"},
		{"get", "snowflake", "-n", "0"},
		{"get", "snowflake", "extra"},
		{"get", "snowflake", "--namespace", "a.b"},
		{"get", "snowflake", "--namespace", ""},
		{"tag", "create"},
		{"tag", "create", "order", "--step", "many"},
		{"tag", "create", "order", "--step", "0"},
		{"tag", "create", "order", "--start=-5"},
		{"tag", "update"},
		{"tag", "update", "order"},
		{"tag", "update", "a b", "--step", "5"},
		{"tag", "update", "order", "--step", "0"},
		{"tag", "update", "order", "--max-id", "5", "--raise-by", "5"},
		{"tag", "update", "order", "--raise-by=-5"},
		{"tag", "update", "order", "--max-id", "many"},
		{"tag", "update", "order", "--desc", strings.Repeat("a", 257)},
		{"tag", "delete"},
		{"tag", "delete", "a..b"},
		{"serve", data, "--tag-poll", "10ms"},
		{"serve", data, "--preload=-1s"},
		{"serve", data, "--auto-create-tags=a[b"},
		{"serve", data, "--auto-create-tags="},
		{"decode"},
		{"decode", "abc"},
		{"decode", "-1"},
		{"decode", "9223372036854775808"},
		{"decode", "5", "--epoch", "-1"},
		{"decode", "5", "--epoch=-1"},
		{"decode", "5", "--epoch", "soon"},
		{"decode", "5", "--epoch", "3001-01-01"},
		{"decode", "5", "--layout", "39+10+4+8"},
		{"layout", "5"},
		{"layout", "--layout", "41+10+13"},
		{"layout", "--layout", ""},
		{"layout", "--epoch", "soon"},
		{"layout", "--years", "10"},
		{"layout", "--years", "10", "--machines", "5", "--peak", "1", "--layout", "leaf"},
		{"layout", "--years", "10", "--machines=-5", "--peak", "1"},
		{"layout", "--years", "10", "--machines", "5", "--peak", "1", "--epoch", "soon"},
		{"layout", "--years", "10", "--machines", "5", "--peak", "1", "--epoch=-1"},
		{"layout", "--years", "10", "--machines", "5", "--peak", "1", "--unit", "1500us"},
		{"layout", "--years", "10", "--machines", "5", "--peak", "1", "--unit", "2m"},
		{"serve", data, "--replicas", "9"},
		{"serve", data, "--deadline", "1ms"},
		{"serve", data, "--deadline", "soon"},
		{"serve", data, "--lease-ttl", "1s"},
		{"serve", data, "--epoch", "-1"},
		{"serve", data, "--layout", "lief"},
		{"serve", data, "--site", "1"},
		{"serve", data, "--layout", "article", "--site", "4"},
		{"serve", data, "--max-batch", "0"},
		{"serve", data, "--max-step", "0"},
		{"serve", data, "--step-time", "1ms"},
		{"serve", data, "--log-level", "loud"},
		{"serve", data, "--log-format", "xml"},
		{"serve", data, "--listen", "nonsense"},
		{"serve", data, "--listen", "127.0.0.1:65536"},
		{"serve", "--data", ""},
		{"--data", ""},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			natsid(t, args...).want(t, 2, "natsid: ", "--help")
		})
	}
}

func TestATagThatCannotBeSentIsRefusedBeforeNATSIsTouched(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			calls.Add(1)
			c.Close()
		}
	})
	nats := "--nats=nats://" + l.Addr().String()
	natsid(t, "get", "segment", "order", nats).want(t, 1) // this one does call
	if calls.Swap(0) == 0 {
		t.Error("a call would not be seen")
	}
	for _, tag := range []string{"", " ", "a b", "a\tb", "a..b", ".a", "a.", "*", ">", "a\nb", "bücher", strings.Repeat("a", 129)} {
		natsid(t, "get", "segment", nats, "--", tag).want(t, 2, "tag")
		natsid(t, "tag", "create", nats, "--", tag).want(t, 2, "tag")
	}
	l.Close()
	accepting.Wait()
	if n := calls.Load(); n != 0 {
		t.Errorf("NATS was called %d times", n)
	}
}

func TestWhereNoNATSIsEveryCommandSaysWhatToDo(t *testing.T) {
	url := nowhere(t)
	for _, args := range [][]string{
		{"get", "segment", "order"}, {"get", "snowflake"}, {"tag", "create", "order"}, {"tag", "list"}, {"workers"},
		{"tag", "update", "order", "--step", "5"}, {"tag", "delete", "order"},
	} {
		natsid(t, append(args, "--nats", url)...).want(t, 1, "cannot reach NATS", url, "start natsid", "--nats")
	}
}

func TestWhereNoWorkerIsGetSaysSo(t *testing.T) {
	natsid(t, "get", "snowflake", "--nats", startServer(t).ClientURL()).want(t, 1, "no worker", "id.snowflake")
}

func TestAStreamThatAnswersFirstIsNotTakenForAWorker(t *testing.T) {
	srv := startServer(t)
	if _, err := jetStream(t, srv.ClientURL()).CreateStream(t.Context(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"id.>"}}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"get", "segment", "order"}, {"get", "snowflake"}, {"tag", "list"}, {"tag", "create", "order"}, {"tag", "update", "order", "--step", "5"}, {"tag", "delete", "order"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			natsid(t, append(args, "--nats", srv.ClientURL())...).want(t, 1, "JetStream stream")
		})
	}
}

func TestTheFlagOverridesTheEnvironment(t *testing.T) {
	url := serve(t).url
	t.Setenv("NATS_URL", url)
	if got := natsid(t, "get", "segment", "order"); got.out != "1\n" {
		t.Errorf("NATS_URL: %+v", got)
	}
	natsid(t, "get", "segment", "order", "--nats", nowhere(t)).want(t, 1, "cannot reach")
	t.Setenv("NATS_URL", nowhere(t))
	natsid(t, "get", "segment", "order").want(t, 1, "cannot reach")
	if got := natsid(t, "get", "segment", "order", "--nats", url); got.out != "2\n" {
		t.Errorf("the flag beside NATS_URL: %+v", got)
	}
}

func TestTheReadyLineSaysWhereAndHow(t *testing.T) {
	own := serve(t)
	if want := fmt.Sprintf("(embedded server, data in %s), worker number ", own.data); !strings.Contains(own.line, want) || !strings.Contains(own.line, "try: nats request id.segment.order ''\n") {
		t.Errorf("%q, want %q", own.line, want)
	}
	url := startServer(t).ClientURL()
	flag := serve(t, "--nats="+url, "--namespace=flag")
	if !strings.Contains(flag.line, url+" (joined), worker number ") || !strings.Contains(flag.line, "nats request flag.segment.order ''") {
		t.Errorf("%q", flag.line)
	}
	t.Setenv("NATS_URL", url)
	env := serve(t, "--http=127.0.0.1:0")
	if !strings.Contains(env.line, url+" (joined, from NATS_URL in the environment), worker number ") || !regexp.MustCompile(`http://127\.0\.0\.1:\d+/readyz`).MatchString(env.line) {
		t.Errorf("%q", env.line)
	}
	if same := serve(t, "--nats="+url, "--namespace=same"); strings.Contains(same.line, "NATS_URL") {
		t.Errorf("%q: the flag counts, whatever stands in the environment", same.line)
	}
}

func TestServeKeepsStandardOutputToOneLineAndEndsWell(t *testing.T) {
	s := serve(t, "--log-level=debug", "--log-format=json")
	natsid(t, "get", "snowflake", "--nats", s.url).want(t, 0)
	got := s.stop()
	if got.code != 0 || got.out != s.line || strings.Count(got.out, "\n") != 1 {
		t.Errorf("exit code %d, standard output %q", got.code, got.out)
	}
	for line := range strings.Lines(got.err) {
		if !json.Valid([]byte(line)) {
			t.Errorf("logged %q, want JSON", line)
		}
	}
}

func TestServeIsTheDefaultAndReadsItsEnvironment(t *testing.T) {
	t.Setenv("NATSID_LISTEN", "127.0.0.1:0")
	t.Setenv("NATSID_HTTP", "")
	t.Setenv("NATSID_NAMESPACE", "env")
	t.Setenv("NATSID_DATA", filepath.Join(t.TempDir(), "data"))
	t.Setenv("NATSID_DEADLINE", "1ms")
	natsid(t).want(t, 2, "deadline")
	t.Setenv("NATSID_DEADLINE", "2s")
	t.Setenv("NATSID_MAX_CLOCK_SKEW", "1ms")
	ctx, cancel := context.WithCancel(t.Context())
	out := cancelAtLine{cancel: cancel}
	if code := cli.Main(ctx, nil, &out, new(natstest.Buffer)); code != 0 || !strings.Contains(out.String(), "env.segment.order") {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}

// cancelAtLine cancels once something is written to it.
type cancelAtLine struct {
	natstest.Buffer
	cancel context.CancelFunc
}

func (c *cancelAtLine) Write(p []byte) (int, error) {
	defer c.cancel()
	return c.Buffer.Write(p)
}

func TestAPasswordIsNeverPrinted(t *testing.T) {
	srv := startServer(t)
	requirePassword(t, srv, "me", "right")
	addr := srv.Addr().String()
	for law, url := range map[string]string{
		"wrong":                "nats://me:secret@" + addr,
		"a token":              "nats://secret@" + addr,
		"no scheme":            "me:secret@" + addr,
		"which breaks the URL": "nats://me:secret%@" + addr,
		"with a slash":         "nats://me:secret/@" + addr,
		"where nobody listens": "nats://me:secret@" + strings.TrimPrefix(nowhere(t), "nats://"),
	} {
		for _, args := range [][]string{
			{"get", "snowflake"}, {"workers"}, {"serve", "--http=", "--data=" + filepath.Join(t.TempDir(), "data")},
		} {
			if args[0] == "serve" && law == "where nobody listens" {
				continue // it waits
			}
			t.Run(args[0]+" "+law, func(t *testing.T) {
				got := natsid(t, append(args, "--nats", url)...)
				if got.want(t, 1, "NATS at nats://xxxxx@"); strings.Contains(got.out+got.err, "secret") {
					t.Errorf("printed: %s", got.err)
				}
			})
		}
	}
	ready := serve(t, "--nats=nats://me:right@"+addr)
	if strings.Contains(ready.line, "right") || !strings.Contains(ready.line, "nats://xxxxx@"+addr) {
		t.Errorf("the ready line is %q", ready.line)
	}
}

// requirePassword makes a server that runs ask for a user and a password.
func requirePassword(t *testing.T, srv *natsembed.Server, user, password string) {
	t.Helper()
	opts := argument(srv.ReloadOptions)
	opts.ServerName, opts.Host, opts.Port, opts.NoSigs = srv.Name(), "127.0.0.1", -1, true
	opts.JetStream, opts.StoreDir, opts.SyncAlways = true, filepath.Dir(srv.JetStreamConfig().StoreDir), true
	opts.Username, opts.Password = user, password
	if err := srv.ReloadOptions(opts); err != nil {
		t.Fatal(err)
	}
}

// argument returns a zero value to call f with: nats-server's own types are
// not for this package to import.
func argument[T any](func(*T) error) *T { return new(T) }

func TestServeThatCannotBeginIsExitCode1(t *testing.T) {
	s := serve(t)
	addr := strings.TrimPrefix(s.url, "nats://")
	natsid(t, "--http=", "--data="+s.data, "--listen=127.0.0.1:0").want(t, 1, "in use", s.data, "--data")
	natsid(t, "--http=", "--data="+filepath.Join(t.TempDir(), "data"), "--listen="+addr).want(t, 1, "--nats nats://"+addr, "--listen")
	natsid(t, "--http=", "--data="+filepath.Join(t.TempDir(), "data"), "--nats="+s.url, "--nats-creds=nowhere.creds").want(t, 1, "nowhere.creds")
}

func TestHelpShowsExamplesThatCanBeCopied(t *testing.T) {
	for _, tc := range []struct{ command, example string }{
		{"", `nats request id.segment.order ""`},
		{"serve", "natsid --nats nats://n1:4222,nats://n2:4222"},
		{"serve", `natsid --listen 127.0.0.1:4333 --http ""`},
		{"get segment", "natsid get segment order -n 100"},
		{"get snowflake", "natsid get snowflake -n 3"},
		{"tag create", "natsid tag create order.eu --step 10000 --start 5000001 --desc 'orders of Europe'"},
		{"tag list", "natsid tag list --stats --all"},
		{"tag update", "natsid tag update order --step 10000 --desc 'orders of Europe'"},
		{"tag delete", "natsid tag delete order"},
		{"workers", "natsid workers"},
		{"serve", "natsid --nats nats://n1:4222 --layout article --site 2"},
		{"decode", "natsid decode 2124263042718941184"},
		{"layout", "natsid layout --years 10 --sites 4 --machines 100 --businesses 10 --peak 100000"},
	} {
		t.Run(tc.command, func(t *testing.T) {
			got := natsid(t, append(strings.Fields(tc.command), "--help")...)
			if got.want(t, 0, ""); !strings.Contains(got.out, tc.example) {
				t.Errorf("no example %q in\n%s", tc.example, got.out)
			}
			if at := strings.IndexFunc(got.out, func(r rune) bool { return r > '~' }); at >= 0 {
				t.Errorf("a character that no keyboard has: %.20q", got.out[at:])
			}
		})
	}
}
