//go:build linux

package supervise_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/supervise"
)

// TestMain is also the supervisor, in a process of its own: it reaps all children.
func TestMain(m *testing.M) {
	lease, err := time.ParseDuration(os.Getenv("TEST_LEASE"))
	if err != nil {
		os.Exit(m.Run())
	}
	until := time.Now().Add(lease)
	c := supervise.Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", os.Args[1]}, Env: os.Environ(),
		Until: func() (time.Time, error) {
			if _, err := os.Stat("renewed"); err == nil {
				until = time.Now().Add(lease)
			}
			if _, err := os.Stat("lost"); err == nil {
				return until, errors.New("the number is lost")
			}
			return until.Round(0), nil
		},
		Say: func(format string, args ...any) { fmt.Printf("said: "+format+"\n", args...) },
	}
	end, err := c.Run()
	fmt.Printf("code %d, whole %t, because %v, error %v\n", end.Code, end.Whole, end.Because, err)
}

// A supervised is a supervisor of a shell script, in a folder of its own.
type supervised struct {
	*testing.T
	cmd *exec.Cmd
	dir string
	out bytes.Buffer
}

// start starts one, in whose folder there are some files.
func start(t *testing.T, lease time.Duration, script string, files ...string) *supervised {
	t.Helper()
	s := &supervised{T: t, cmd: exec.Command(os.Args[0], script), dir: t.TempDir()}
	s.cmd.Env = append(os.Environ(), "TEST_LEASE="+lease.String())
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.out, &s.out
	for _, name := range files {
		s.put(name)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop(); _ = s.cmd.Process.Kill() })
	return s
}

// ends waits for the end of the supervisor, and checks that each text is in its output, in this order.
func (s *supervised) ends(want ...string) {
	s.Helper()
	if err := s.cmd.Wait(); err != nil {
		s.Errorf("the supervisor failed: %v", err)
	}
	left := s.out.String()
	for _, text := range want {
		_, after, ok := strings.Cut(left, text)
		if !ok {
			s.Fatalf("printed\n%s\nwant %q", s.out.String(), want)
		}
		left = after
	}
}

// file waits for the file that a script writes, and returns its text.
func (s *supervised) file(name string) string {
	s.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(s.dir, name)); err == nil && len(text) > 0 {
			return strings.TrimSpace(string(text))
		}
	}
	s.Fatalf("the command wrote no file %s: %s", name, &s.out)
	return ""
}

// put writes a file that the supervisor looks for.
func (s *supervised) put(name string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
		s.Fatal(err)
	}
}

// gone checks that a process ends within 10 s.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if syscall.Kill(n, 0) == syscall.ESRCH {
			return
		}
	}
	t.Errorf("process %s is still there", pid)
}

func TestTheExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	start(t, time.Hour, "exit 7").ends("code 7, whole true, because <nil>, error <nil>")
	start(t, time.Hour, "kill -USR1 $$").ends("code 138, whole true, because <nil>")
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		if signal.Ignored(sig) {
			continue // the test runs below nohup
		}
		s := start(t, time.Hour, fmt.Sprintf(`trap 'exit 9' %d; echo on > on; while :; do sleep 0.01; done`, sig))
		s.file("on")
		_ = s.cmd.Process.Signal(sig)
		s.ends("code 9, whole true, because <nil>")
	}
}

func TestALeaseThatEndsWarnsThenTerminatesThenKills(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := start(t, 3*time.Second, `trap 'date +%s%N > term' TERM; while :; do date +%s%N >> last; sleep 0.01; done`)
	s.ends("said: the number cannot be renewed", "SIGTERM", "SIGKILL",
		"code 137, whole false, because the window ended")
	at := func(name string) time.Duration {
		lines := strings.Fields(s.file(name)) // SIGKILL may cut the last one short
		ns, _ := strconv.ParseInt(lines[max(0, len(lines)-2)], 10, 64)
		return time.Unix(0, ns).Sub(began)
	}
	if term, last := at("term"), at("last"); term < 2*time.Second || last < term {
		t.Errorf("SIGTERM after %v, the last sign of life after %v", term, last)
	}
}

func TestACommandThatHeedsSIGTERMEndsWhole(t *testing.T) {
	t.Parallel()
	start(t, time.Second, `trap 'exit 5' TERM; while :; do sleep 0.01; done`).
		ends("SIGTERM", "code 5, whole true, because the window ends at")
}

func TestARenewedLeaseEndsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, time.Second, `sleep 3; exit 3`, "renewed")
	s.ends("code 3, whole true, because <nil>")
	if strings.Contains(s.out.String(), "said") {
		t.Errorf("printed %s", &s.out)
	}
}

func TestALostLeaseKillsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, time.Hour, `trap '' TERM; echo on > on; while :; do sleep 0.01; done`)
	s.file("on")
	s.put("lost")
	s.ends("the number is lost: SIGKILL", "code 137, whole false, because the number is lost")
}

// A process that a command leaves behind has the number in its environment.
func TestWhatACommandLeavesBehindIsKilledAndReaped(t *testing.T) {
	t.Parallel()
	s := start(t, time.Hour, `setsid sh -c 'echo $$ > left; exec sleep 600' & while [ ! -s left ]; do :; done; exit 2`)
	s.ends("code 2, whole true")
	gone(t, s.file("left"))
}

func TestAZombieOfTheCommandIsReapedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := start(t, time.Hour, `sh -c 'sh -c "echo \$\$ > orphan" & exit'; while [ ! -e enough ]; do sleep 0.01; done`)
	gone(t, s.file("orphan"))
	s.put("enough")
	s.ends("code 0, whole true")
}

func TestTheCommandEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	s := start(t, time.Hour, `echo $$ > pid; exec sleep 600`)
	pid := s.file("pid")
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	gone(t, pid)
}

// A container's log may be read by nobody.
func TestACommandIsKilledThoughNobodyReadsTheOutput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for full := time.Now().Add(time.Second); err == nil; { // until the pipe takes no more
		_ = w.SetWriteDeadline(full)
		_, err = w.Write(make([]byte, 1024))
	}
	s := &supervised{T: t, dir: t.TempDir()}
	s.cmd = exec.Command(os.Args[0], `trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done`)
	s.cmd.Env, s.cmd.Dir, s.cmd.Stdout = append(os.Environ(), "TEST_LEASE=2s"), s.dir, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() }()
	gone(t, s.file("pid"))
}

func TestACommandBelowNohupIgnoresSIGHUP(t *testing.T) {
	t.Parallel()
	c := exec.Command("sh", "-c", `trap '' HUP; exec "$0" 'kill -HUP $PPID $$; exit 6'`, os.Args[0])
	c.Env = append(os.Environ(), "TEST_LEASE=1h")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "code 6, whole true") {
		t.Errorf("%v: %s", err, out)
	}
}

// The command may have woken up too; a lease whose end has passed is not excused by a look that came late.
func TestASupervisorThatWasPausedKillsWhenItWakesUp(t *testing.T) {
	t.Parallel()
	s := start(t, 2*time.Second, `trap '' TERM; echo on > on; while :; do sleep 0.01; done`)
	s.file("on")
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond)
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	s.ends("SIGKILL", "code 137, whole false")
}
