package tests

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A process is a natsid in a process of its own: this test binary, run as natsid.
type process struct {
	cmd  *exec.Cmd
	log  natstest.Buffer
	line chan string // the ready line
}

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
	p := buildProcess(t, args...)
	p.start(t)
	return p
}

// buildProcess returns `natsid args…`, not started.
func buildProcess(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"serve", "--http", "", "--log-level", "error"}, args...)
	p := &process{cmd: exec.Command(exe, all...), line: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), execEnv+"=1")
	p.cmd.Stderr = io.MultiWriter(t.Output(), &p.log)
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
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
}

// waitReady waits until the process says that it is ready.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	select {
	case text := <-p.line:
		if !strings.HasPrefix(text, "natsid is ready on ") {
			t.Fatalf("instead of the ready line: %q", text)
		}
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

// systemd, terminals and the pipes of logs end before natsid does. Each is an end in order, or none.
func TestAWorkerIsEndedByNoSignalWithoutADrain(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		p := startProcess(t, "--listen", "127.0.0.1:0", "--data", t.TempDir())
		if p.signal(sig); p.cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("after %v: %v, want exit code 0", sig, p.cmd.ProcessState)
		}
	}
	url, reader, log := natstest.Start(t), (*os.File)(nil), (*os.File)(nil)
	var err error
	if reader, log, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	p := buildProcess(t, "--nats", url, "--data", t.TempDir(), "--log-level", "debug")
	p.cmd.Stderr = log
	p.start(t)
	log.Close()
	reader.Close() // each line of the log fails from here on
	p.waitReady(t)
	if p.signal(syscall.SIGTERM); p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("without a reader of its log: %v, want exit code 0", p.cmd.ProcessState)
	}
}
