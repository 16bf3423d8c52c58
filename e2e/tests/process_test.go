package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A process is a natsid in a process of its own: this test binary, run as natsid.
type process struct {
	cmd    *exec.Cmd
	log    natstest.Buffer
	line   chan string // the ready line
	number int         // its worker number, once it is ready
}

var readyRe = regexp.MustCompile(`^natsid is ready on .*, worker number (\d+)`)

// startProcess runs `natsid args…` and returns once it is ready.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := launchProcess(t, args...)
	p.waitReady(t)
	return p
}

// launchProcess runs `natsid args…`, at the longest until the test ends.
func launchProcess(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchProgram(t, exe, args...)
}

// launchProgram is launchProcess for the natsid at a path.
func launchProgram(t *testing.T, exe string, args ...string) *process {
	t.Helper()
	all := append([]string{"serve", "--http", "", "--log-level", "error"}, args...)
	p := &process{cmd: exec.Command(exe, all...), line: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), execEnv+"=1")
	p.cmd.Stderr = io.MultiWriter(t.Output(), &p.log)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.signal(syscall.SIGKILL) })
	go func() {
		s := bufio.NewScanner(out)
		s.Scan()
		p.line <- s.Text()
	}()
	return p
}

// waitReady waits until the process says that it is ready.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	select {
	case text := <-p.line:
		m := readyRe.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("instead of the ready line: %q", text)
		}
		p.number, _ = strconv.Atoi(m[1])
	case <-time.After(patience):
		t.Fatalf("%v is not ready after %v", p.cmd, patience)
	}
}

// signal sends a signal and waits for the process to end.
func (p *process) signal(sig os.Signal) {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(sig) // fails only if it has ended by itself
		_ = p.cmd.Wait()              // so does a killed process
	}
}

// freePort returns an address on loopback that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestATermSignalStopsCleanlyAndTheNextStartServesAtOnce(t *testing.T) {
	t.Parallel()
	addr, dir := freePort(t), t.TempDir()
	var last [2]int64
	for range 2 {
		p := startProcess(t, "--listen", addr, "--data", dir, "--deadline", "30s")
		nc, err := nats.Connect("nats://"+addr, nats.Timeout(patience))
		if err != nil {
			t.Fatal(err)
		}
		for i, subject := range []string{"id.segment.order", "id.snowflake"} {
			msg, err := nc.Request(subject, nil, patience)
			if err != nil {
				t.Fatal(err)
			}
			id, err := strconv.ParseInt(string(msg.Data), 10, 64)
			if err != nil || id <= last[i] {
				t.Errorf("%s: %q after %d, %v", subject, msg.Data, last[i], err)
			}
			last[i] = id
		}
		nc.Close()
		p.signal(syscall.SIGTERM)
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

func TestASecondProcessOnALiveDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	startProcess(t, "--listen", freePort(t), "--data", dir)
	out := fails(t, "--listen", freePort(t), "--data", dir)
	want := fmt.Sprintf("natsid: the data directory is in use: another natsid runs in %s, or has ended "+
		"and its disk hangs; stop it, or give this one a directory of its own with --data DIR\n", dir)
	if out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
}

// fails runs `natsid args…`, which must fail, and returns its output.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, append([]string{"serve", "--http", ""}, args...)...)
	cmd.Env = append(os.Environ(), execEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("natsid %v succeeded", args)
	}
	return string(out)
}
