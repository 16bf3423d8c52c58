//go:build linux

package supervise_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/natsid/natsid/internal/supervise"
	"github.com/natsid/natsid/internal/testkit/wait"
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
	s := prepare(t, lease, script)
	for _, name := range files {
		s.put(name)
	}
	s.start()
	return s
}

// prepare returns one that is not started.
func prepare(t *testing.T, lease time.Duration, script string) *supervised {
	s := &supervised{T: t, cmd: exec.Command(os.Args[0], script), dir: t.TempDir()}
	s.cmd.Env = append(os.Environ(), "TEST_LEASE="+lease.String())
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a job of a shell; the test's group may be in front
	return s
}

func (s *supervised) start() {
	s.Helper()
	if err := s.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	s.Cleanup(func() { late.Stop(); _ = s.cmd.Process.Kill() })
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
	var text []byte
	wait.Until(s, "the command writes a file "+name, func() (is bool) {
		text, _ = os.ReadFile(filepath.Join(s.dir, name))
		return len(text) > 0
	})
	return strings.TrimSpace(string(text))
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
	start(t, time.Second, `trap 'exit 5' TERM; while :; do sleep 0.01; done`).
		ends("SIGTERM", "code 5, whole true, because the window ends at")
	renewed := start(t, time.Second, `sleep 3; exit 3`, "renewed")
	if renewed.ends("code 3, whole true, because <nil>"); strings.Contains(renewed.out.String(), "said") {
		t.Errorf("printed %s", &renewed.out)
	}
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

func TestACommandBelowNohupIgnoresSIGHUP(t *testing.T) {
	t.Parallel()
	c := exec.Command("sh", "-c", `trap '' HUP; exec "$0" 'kill -HUP $PPID $$; exit 6'`, os.Args[0])
	c.Env = append(os.Environ(), "TEST_LEASE=1h")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "code 6, whole true") {
		t.Errorf("%v: %s", err, out)
	}
}

// signal sends a signal to the job, as a shell or a terminal does.
func (s *supervised) signal(sig syscall.Signal) {
	s.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, sig); err != nil {
		s.Error(err)
	}
}

// stop stops the job, and waits until the supervisor and the command, whose ID is in file on, have stopped.
func (s *supervised) stop() {
	s.Helper()
	pids := []string{strconv.Itoa(s.cmd.Process.Pid), s.file("on")}
	s.signal(syscall.SIGTSTP)
	isStopped := func(pid string) bool {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		// D is a shell that waits for its new child, which has stopped.
		return bytes.Contains(stat, []byte(") T ")) || bytes.Contains(stat, []byte(") D "))
	}
	wait.Until(s, "the supervisor has stopped", func() bool { return isStopped(pids[0]) })
	wait.Until(s, "its command has stopped", func() bool { return isStopped(pids[1]) })
}

func TestAShellStopsAndContinuesTheJobAsAWhole(t *testing.T) {
	t.Parallel()
	s := start(t, time.Hour, `echo $$ > on; while [ ! -e enough ]; do sleep 0.01; done; exit 3`)
	s.stop()
	s.signal(syscall.SIGCONT)
	s.put("enough")
	s.ends("code 3, whole true, because <nil>")
}

// A lease that ended while both stood still is not excused by a look that came late.
func TestAJobThatWasStoppedBeyondItsLeaseIsKilledWhenItContinues(t *testing.T) {
	t.Parallel()
	s := start(t, 2*time.Second, `trap '' TERM; echo $$ > on; while :; do sleep 0.01; done`, "renewed")
	s.stop()
	if err := os.Remove(filepath.Join(s.dir, "renewed")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // it was renewed before the stop
	s.signal(syscall.SIGCONT)
	s.ends("SIGKILL", "code 137, whole false")
}

// A terminal is one whose keys a test types.
type terminal struct {
	*testing.T
	keys, tty *os.File
}

func openTerminal(t *testing.T) terminal {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	tty, openErr := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err = errors.Join(err, openErr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return terminal{t, keys, tty}
}

// press presses a key, and waits until the terminal has sent its signal.
func (t terminal) press(key byte) {
	t.Helper()
	if _, err := t.keys.Write([]byte{key}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(t.keys, make([]byte, len("^C"))); err != nil {
		t.Fatal(err)
	}
}

// start starts a supervisor, in a new session of the terminal.
func (t terminal) start(s *supervised) {
	s.cmd.Stdin, s.cmd.SysProcAttr = t.tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.start()
}

const (
	ctrlC = 0x03
	ctrlZ = 0x1a
)

// The terminal sends the signal of a key to the supervisor and to the command, unless that has left its session.
func TestTheSignalOfAKeyIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for begin, want := range map[string]string{"exec ": "code 1", "exec setsid ": "code 0"} {
		term := openTerminal(t)
		s := prepare(t, time.Hour, begin+`sh -c "trap 'n=1; echo on > key' INT; trap 'exit \$n' USR1; n=0
			echo \$PPID > on
			while :; do sleep 0.01; done"`)
		s.cmd.Args = []string{"sh", "-c", `trap : INT; "$0" "$1" ; :`, s.cmd.Path, s.cmd.Args[1]}
		s.cmd.Path = "/bin/sh"
		term.start(s)
		supervisor, err := strconv.Atoi(s.file("on"))
		if err != nil {
			t.Fatal(err)
		}
		term.press(ctrlC)
		if want == "code 1" {
			s.file("key") // a shell may see a later signal first
		}
		_ = syscall.Kill(supervisor, syscall.SIGUSR1)
		s.ends(want + ", whole true, because <nil>")
	}
}

// In a container with a terminal the signal that stops it may be the same as that of a key, and no shell continues what
// a key has stopped.
func TestALeaderOfASessionPassesOnWhatIsSent(t *testing.T) {
	t.Parallel()
	term := openTerminal(t)
	s := prepare(t, time.Hour, `trap 'n=$((n+1)); echo $n > n$n' INT; trap 'exit $n' USR1; n=0; echo on > on
		while :; do sleep 0.01; done`)
	term.start(s)
	s.file("on")
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	s.file("n1")
	term.press(ctrlC)
	s.file("n2")
	term.press(ctrlZ)
	_ = s.cmd.Process.Signal(syscall.SIGUSR1)
	s.ends("code 2, whole true, because <nil>")
}
