package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_NATSID") != "" { // a shell runs this program as natsid
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "NATS") {
			os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m, natstest.Left()...)
}

// A result is the outcome of a command.
type result struct {
	code     int
	out, err string
}

// natsid runs a command line to its end.
func natsid(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs natstest.Buffer
	code := cli.Main(ctx, args, &out, &errs)
	if ctx.Err() != nil {
		t.Errorf("%q does not return", args)
	}
	return result{code, out.String(), errs.String()}
}

// answered runs a command line again while there is no answer, or a worker has none: both wait for some seconds, and a
// busy machine stands still for as long. A creation that got no answer may have made the tag all the same.
func answered(t *testing.T, args ...string) (r result) {
	t.Helper()
	maybeCreated := false
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r = natsid(t, args...)
		if maybeCreated && strings.Contains(r.err, "the tag exists") {
			return result{}
		}
		if r.code == 0 || !unanswered.MatchString(r.err) || time.Now().After(end) {
			return r
		}
		maybeCreated = args[0] == "tag" && args[1] == "create"
	}
}

// unanswered matches what a command says that got no answer in its time, and the code of a worker that has none.
var unanswered = regexp.MustCompile(`\b503\b|no worker|obody answers|not? answer|cannot reach|deadline|timeout`)

// want checks the exit code, and that standard error has each of the words; ""
// stands for none at all.
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

// A started command runs until stop is called, at the latest by the end of the test.
type started struct {
	out, err natstest.Buffer
	ended    chan struct{}
	stop     func() result
}

// start runs a command line in the background.
func start(t *testing.T, args ...string) *started {
	ctx, cancel := context.WithCancel(context.Background())
	s, code := &started{ended: make(chan struct{})}, 0
	go func() {
		defer close(s.ended)
		code = cli.Main(ctx, args, &s.out, &s.err)
	}()
	s.stop = sync.OnceValue(func() result {
		cancel()
		<-s.ended
		return result{code, s.out.String(), s.err.String()}
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// A served natsid is a worker.
type served struct {
	*started
	url  string
	line string // what it prints when it is ready
	data string
}

var readyURL = regexp.MustCompile(`^(?:natsid is ready on |{"url":")([^ ",]+)[",]`)

// serve starts natsid, on a free port and with a new directory unless flags say
// otherwise, and returns once it is ready.
func serve(t *testing.T, args ...string) served {
	t.Helper()
	s := served{data: filepath.Join(t.TempDir(), "data")}
	common := []string{
		"--listen=127.0.0.1:0", "--http=", "--data=" + s.data, "--max-clock-skew=1ms", "--log-level=warn",
	}
	s.started = start(t, append(common, args...)...)
	late := time.After(time.Minute)
	for !strings.Contains(s.out.String(), "\n") {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-s.ended:
			t.Fatalf("natsid %q ended: %+v", args, s.stop())
		case <-late:
			t.Fatalf("natsid %q is not ready: %s", args, s.err.String())
		}
	}
	s.line = s.out.String()
	if m := readyURL.FindStringSubmatch(s.line); m != nil {
		s.url = m[1]
	} else {
		t.Fatalf("the ready line is %q", s.line)
	}
	return s
}

// nowhere returns the URL of an address that is not in use.
func nowhere(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	return "nats://" + addr
}

func TestARequestThatAWorkerRefusesIsExitCode3WithTheReason(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	answered(t, "get", "segment", "unknown", nats).want(t, 3, "404", "natsid tag create")
	answered(t, "tag", "create", "order", "--step=99999999999999", nats).want(t, 3, "400", "step")
	natsid(t, "get", "snowflake", "--namespace=other", nats).want(t, 1, "namespace", "other.snowflake")
}

func TestAResumeThatIsCalledWronglyChangesNothing(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	answered(t, "get", "segment", "order", nats).want(t, 0)
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"--restored", 2, "--yes"},
		{"--keep=NONE --yes", 2, "this NATS reaches registry"},
		{"--bump=-1", 2, "--bump -1"},
		{"--bump=5 --yes", 2, "not stopped, so nothing is raised"},
		{"--restored --dry-run", 0, "The new era has offset 1000000000: "},
		{"", 0, "in order"},
	} {
		got := natsid(t, append(append([]string{"resume"}, strings.Fields(tc.args)...), nats)...)
		if got.code != tc.code || !strings.Contains(got.out+got.err, tc.says) {
			t.Errorf("resume %s: %+v, want code %d and %q", tc.args, got, tc.code, tc.says)
		}
	}
	wantFrom(t, 2, answered(t, "get", "segment", "order", nats))
	natsid(t, "resume", "--namespace=other", nats).want(t, 1, "no bucket other_segments", "--namespace")
	if got := natsid(t, "status", "--namespace=other", nats); got.code != 1 || !strings.Contains(got.err, "namespace") {
		t.Errorf("%+v", got)
	}
}

func TestVersionNamesTheProgramAndItsBuild(t *testing.T) {
	form := regexp.MustCompile(`^natsid \d+\.\d+\.\d+\S* ` +
		`\(commit .+; go1\.\S+, nats\.go \S*, nats-server \S*, \w+/\w+\)\n$`)
	if got := natsid(t, "--version"); got.code != 0 || !form.MatchString(got.out) {
		t.Errorf("%+v", got)
	}
}

func TestWithoutNATSEveryCommandSaysWhatToDo(t *testing.T) {
	t.Parallel()
	addr := strings.TrimPrefix(nowhere(t), "nats://")
	for _, args := range [][]string{
		{"get", "segment", "order"}, {"get", "snowflake"}, {"tag", "create", "order"}, {"tag", "list"}, {"workers"},
		{"tag", "update", "order", "--step", "5"}, {"tag", "delete", "order"}, {"tag", "stats"},
	} {
		got := natsid(t, append(args, "--nats", "nats://me:secret@"+addr)...)
		got.want(t, 1, "cannot reach NATS at nats://xxxxx@"+addr, "start natsid", "--nats")
		if strings.Contains(got.err, "secret") {
			t.Errorf("%q prints a password: %s", args, got.err)
		}
	}
}

func TestHelpShowsExamplesThatCanBeCopied(t *testing.T) {
	for _, command := range []string{"serve", "get segment", "get snowflake", "help", "tag create",
		"tag update", "tag delete", "bench segment", "bench snowflake", "resume", "store move", "decode"} {
		t.Run(command, func(t *testing.T) {
			got := natsid(t, append(strings.Fields(command), "--help")...)
			if got.want(t, 0, ""); !strings.Contains(got.out, "\n    natsid ") {
				t.Errorf("no example in\n%s", got.out)
			}
			own, _, found := strings.Cut(got.out, "\nFlags of every command: ")
			if !found || strings.Contains(own, "--nats=") {
				t.Errorf("flags of every command are not below all others:\n%s", got.out)
			}
			if bare := regexp.MustCompile(`--[a-z-]+=(""|STRING)`).FindString(got.out); bare != "" {
				t.Errorf("%s does not say what the flag takes", bare)
			}
			if at := strings.IndexFunc(got.out, func(r rune) bool { return r > '~' }); at >= 0 {
				t.Errorf("a character outside ASCII: %.20q", got.out[at:])
			}
		})
	}
}

// A stranger's name must not move the cursor of an operator, nor set the title of the window, nor forge a line.
func TestWhatAStrangerWroteReachesNoTerminalAsACommand(t *testing.T) {
	const name = "w\x1b]0;owned\x07\u009b2J\u202e1\nforged\tforged"
	s := serve(t, "--name="+name)
	nats := "--nats=" + s.url
	answered(t, "tag", "create", "order", "--desc=\x1b[2J\nforged", nats).want(t, 0)
	natsid(t, "audit", "--nats="+name).want(t, 1)
	for _, command := range []string{"workers", "workers --json", "status", "tag list", "tag list --json", "tag stats",
		"tag delete order"} {
		got := natsid(t, append(strings.Fields(command), nats)...)
		for _, text := range []string{got.out, got.err} {
			if strings.ContainsAny(text, "\x1b\x07\u009b\u202e") || strings.Contains(text, "\nforged") {
				t.Errorf("%s: %q", command, text)
			}
		}
		if strings.HasPrefix(command, "workers") && !strings.Contains(got.out, "owned") {
			t.Errorf("%s: %+v, want the name", command, got)
		}
	}
}
