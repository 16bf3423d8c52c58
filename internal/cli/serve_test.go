package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestTheReadyLineSaysWhereAndHow(t *testing.T) {
	own := serve(t)
	own.says(t, fmt.Sprintf("\nembedded server, data in %s; try:", own.data), ", worker number ",
		"try: nats --server "+own.url+" request id.segment.order ''\n")
	url := natstest.Start(t)
	flag := serve(t, "--nats="+url, "--namespace=flag")
	flag.says(t, url+", worker number ", "\njoined; try: nats request flag.segment.order ''")
	t.Setenv("NATS_URL", url)
	env := serve(t, "--http=127.0.0.1:0")
	env.says(t, url, "\njoined, from NATS_URL in the environment; ")
	if !regexp.MustCompile(`http://127\.0\.0\.1:\d+/readyz`).MatchString(env.line) {
		t.Errorf("%q, want the address of /readyz", env.line)
	}
	if same := serve(t, "--nats="+url, "--namespace=same"); strings.Contains(same.line, "NATS_URL") {
		t.Errorf("%q: the flag takes precedence over the environment", same.line)
	}
}

// systemd starts what waits for natsid when it is ready, not when it is started.
func TestSystemdLearnsThatTheWorkerIsReadyAndThatItStops(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	reported := func() string {
		_ = systemd.SetReadDeadline(time.Now().Add(time.Minute))
		state := make([]byte, 100)
		n, err := systemd.Read(state)
		if err != nil {
			t.Fatal(err)
		}
		return string(state[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	worker := serve(t)
	if got := reported(); got != "READY=1" {
		t.Errorf("%q after the ready line, want READY=1", got)
	}
	worker.stop()
	if got := reported(); got != "STOPPING=1" {
		t.Errorf("%q after the stop, want STOPPING=1", got)
	}
}

// says checks that the ready line has all of the words.
func (s served) says(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(s.line, w) {
			t.Errorf("the ready line is %q, want %q", s.line, w)
		}
	}
}

func TestAServerThatIsOpenSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t, "--listen-conf="+configFile(t, `listen: "0.0.0.0:-1"`))
	if got := s.stop(); got.code != 0 || !strings.Contains(got.err, "can make IDs repeat") {
		t.Errorf("%+v", got)
	}
}

func TestServePrintsTwoLinesAndStopsCleanly(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log-level=debug", "--log-format=json")
	answered(t, "get", "snowflake", "--nats", s.url).want(t, 0)
	got := s.stop()
	if got.code != 0 || got.out != s.line || strings.Count(got.out, "\n") != 2 {
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
	natsid(t).want(t, 2, "NATSID_DEADLINE 1ms: want")
	t.Setenv("NATSID_DEADLINE", "2s")
	t.Setenv("NATSID_MAX_CLOCK_SKEW", "1ms")
	ctx, cancel := context.WithCancel(t.Context())
	out := cancelAtLine{cancel: cancel}
	code := cli.Main(ctx, nil, &out, new(natstest.Buffer))
	if code != 0 || !strings.Contains(out.String(), "env.segment.order") {
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

func TestServeThatCannotStartIsExitCode1(t *testing.T) {
	t.Parallel()
	s := serve(t)
	addr := strings.TrimPrefix(s.url, "nats://")
	data := "--data=" + filepath.Join(t.TempDir(), "data")
	natsid(t, "--http=", "--data="+s.data, "--listen=127.0.0.1:0").want(t, 1, "in use", s.data, "--data")
	natsid(t, "--http=", "--data="+s.data, "--nats="+s.url).want(t, 1, "in use", s.data, "--data")
	natsid(t, "--http=", data, "--listen="+addr).want(t, 1, "--nats nats://"+addr, "--listen")
	natsid(t, "--http=", data, "--nats="+s.url, "--creds=nowhere.creds").want(t, 1, "nowhere.creds")
}
