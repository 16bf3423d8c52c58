package tests

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A testServer is `natsid test-server` in a process of its own.
type testServer struct {
	NATS, Websocket, HTTP, Control, Namespace, Version string

	PID int
	cmd *exec.Cmd // natsid, or its parent
	in  io.Closer // what cmd reads
	tmp string    // directory of its temporary files
}

// startTestServer starts `natsid test-server`, by a shell where script is not "", and returns it once it has printed
// its line.
func startTestServer(t *testing.T, script string, args ...string) *testServer {
	t.Helper()
	s, out := launchTestServer(t, script, args...)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, s) != nil {
		t.Fatalf("instead of the line of JSON: %q, %v", line, err)
	}
	return s
}

func launchTestServer(t *testing.T, script string, args ...string) (s *testServer, out io.ReadCloser) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"test-server"}, args...)
	s = &testServer{cmd: exec.Command(exe, args...), tmp: t.TempDir()}
	if script != "" {
		s.cmd = exec.Command("/bin/sh", append([]string{"-c", script, exe}, args...)...)
	}
	s.cmd.Env = append(os.Environ(), execEnv+"=1", "TMPDIR="+s.tmp, "NATS_URL=nats://127.0.0.1:1")
	s.cmd.Stderr, s.cmd.WaitDelay = t.Output(), patience
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		if out, err = s.cmd.StdoutPipe(); err == nil {
			err = s.cmd.Start()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, err := os.FindProcess(s.PID); err == nil && s.PID > 0 {
			_ = p.Kill() // fails if all is well
		}
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s, out
}

// gone waits until the test server has removed its directory, which it does last, and checks that it does not listen.
func (s *testServer) gone(t *testing.T) {
	t.Helper()
	wait.Until(t, "the end of the test server", func() bool {
		left, err := os.ReadDir(s.tmp)
		return err == nil && len(left) == 0
	})
	if nc, err := nats.Connect(s.NATS); err == nil && s.NATS != "" {
		nc.Close()
		t.Error("its NATS server is still there")
	}
}

func TestTheTestServerServesAndEndsWithItsInput(t *testing.T) {
	t.Parallel()
	s := startTestServer(t, "", "--namespace", "shop", "--layout", "js53")
	if s.Namespace != "shop" || s.Version == "" || s.PID != s.cmd.Process.Pid {
		t.Errorf("the line says %+v", s)
	}
	for i, url := range []string{s.NATS, s.Websocket} {
		nc := natstest.Connect(t, url)
		m, err := nc.Request("shop.segment.order", nil, patience)
		if err != nil || string(m.Data) != strconv.Itoa(i+1) {
			t.Errorf("ID %d at %s: %v, %v", i+1, url, m, err)
		}
		m, err = nc.Request("shop.snowflake", nil, patience)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := strconv.ParseInt(string(m.Data), 10, 64); err != nil || id >= 1<<53 {
			t.Errorf("a snowflake of layout js53 is %s, %v", m.Data, err)
		}
	}
	wait := func() {
		if r, err := http.Get(s.HTTP + "/readyz"); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("/readyz: %v, %v", r, err)
		} else {
			r.Body.Close()
		}
	}
	wait()
	nc := natstest.Connect(t, s.NATS)
	for order, code := range map[string]subjects.Code{"restart": 0, "repeat": subjects.BadRequest} {
		m, err := nc.Request(s.Control, []byte(order), patience)
		if err != nil {
			t.Fatal(err)
		}
		if refused := subjects.ParseError(m.Header); code == 0 && (refused != nil || string(m.Data) != "ok") ||
			code != 0 && (refused == nil || refused.Code != code) {
			t.Errorf("%s: %q, %v", order, m.Data, refused)
		}
	}
	wait() // at the address of before
	if left, _ := os.ReadDir(s.tmp); len(left) != 1 {
		t.Errorf("while it runs its temporary directory has %v", left)
	}
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	s.gone(t)
}

func TestTheTestServerEndsWithASignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		s := startTestServer(t, "")
		_ = s.cmd.Process.Signal(sig)
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("after %v it ends with %v", sig, err)
		}
		s.gone(t)
	}
}

// A suite that is killed leaves nothing, whatever its test server reads. Standard input that gives nothing, such as
// /dev/null, is no reason to end.
func TestTheTestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	for reads, script := range map[string]string{
		"a pipe that stays open": `"$0" "$@" <&0 & wait`,
		"nothing":                `"$0" "$@" </dev/null & wait`,
	} {
		t.Run(reads, func(t *testing.T) {
			t.Parallel()
			s := startTestServer(t, script)
			ids := clientOn(natstest.Connect(t, s.NATS))
			defer ids.Close()
			time.Sleep(300 * time.Millisecond) // longer than it takes to see an end
			order := client.Must(ids.Segment("order", client.SegmentConfig{}))
			if id, err := order.Next(t.Context()); id < 1 || id > 100 || err != nil {
				t.Fatalf("%d, %v, want an ID", id, err)
			}
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			s.gone(t)
		})
	}
}

// A line that nobody takes must not end the process before its directory is removed.
func TestATestServerThatNobodyHearsLeavesNothing(t *testing.T) {
	t.Parallel()
	s, out := launchTestServer(t, "")
	out.Close()
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ends with %v, want exit code 1", err)
	}
	s.gone(t)
}
