//go:build linux

package tests

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/pty"
)

// A sitter looks at a terminal on which natsid runs.
type sitter struct {
	keys, terminal *os.File
	shown          natstest.Buffer
	cmd            *exec.Cmd
	ended          chan error
}

// sit runs `natsid args…` in a process whose terminal has so many columns and lines.
func sit(t *testing.T, columns, lines int, args ...string) *sitter {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &sitter{cmd: exec.Command(exe, args...), ended: make(chan error, 1)}
	s.keys, s.terminal = pty.Open(t)
	pty.Resize(t, s.terminal, columns, lines)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.terminal, s.terminal, s.terminal
	s.cmd.Env = append(os.Environ(), execEnv+"=1", "TERM=xterm", "NO_COLOR=")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&s.shown, s.keys) }() // until the terminal is closed
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// frame returns the lines that the terminal shows.
func (s *sitter) frame() []string {
	frames := strings.Split(s.shown.String(), "\x1b[H")
	for i := len(frames) - 1; i > 0; i-- {
		if text, _, whole := strings.Cut(frames[i], "\x1b[J"); whole {
			return strings.Split(strings.ReplaceAll(escapes.ReplaceAllString(text, ""), "\r", ""), "\n")
		}
	}
	return nil
}

// sees waits until the terminal shows a line that matches.
func (s *sitter) sees(t *testing.T, pattern string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal shows\n%s", strings.Join(s.frame(), "\n"))
		}
	})
	waitFor(t, pattern, func() bool {
		return regexp.MustCompile("(?m)" + pattern).MatchString(strings.Join(s.frame(), "\n"))
	})
}

// leaves types a key, and waits until natsid has ended well and the terminal is as it was.
func (s *sitter) leaves(t *testing.T, key string, was *unix.Termios) {
	t.Helper()
	if _, err := s.keys.WriteString(key); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("after %q: %v", key, err)
	}
	if is := modesOf(t, s.terminal); *is != *was {
		t.Errorf("after %q the terminal has the modes %+v, had %+v", key, is, was)
	}
	const back = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	waitFor(t, "the shell's screen is back", func() bool { return strings.HasSuffix(s.shown.String(), back) })
}

func modesOf(t *testing.T, terminal *os.File) *unix.Termios {
	t.Helper()
	modes, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return modes
}

func TestTopShowsTheFleetOnATerminal(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	startProcess(t, "--nats", server, "--data", t.TempDir(), "--name", "first")
	second := startProcess(t, "--nats", server, "--data", t.TempDir(), "--name", "second")
	_, fresh := pty.Open(t)
	was := modesOf(t, fresh)
	s := sit(t, 80, 24, "top", "--nats", server)
	s.sees(t, "2 of 2 answered, 2 serving$")
	s.sees(t, `^first +serving +\d+ `)
	_ = second.cmd.Process.Signal(syscall.SIGSTOP) // it fails only if it has ended
	s.sees(t, "1 of 2 answered, 1 serving$")
	s.sees(t, `^second +no answer`)
	s.sees(t, "It last answered .* ago, and did not stop cleanly")
	if n := len(s.frame()); n > 24 {
		t.Errorf("%d lines", n)
	}
	pty.Resize(t, s.terminal, 30, 6)
	waitFor(t, "a frame that fits", func() bool {
		for _, line := range s.frame() {
			if len(line) > 30 {
				return false
			}
		}
		return len(s.frame()) <= 6
	})
	_ = second.cmd.Process.Signal(syscall.SIGCONT)
	pty.Resize(t, s.terminal, 80, 24)
	s.sees(t, "2 of 2 answered, 2 serving$")
	s.leaves(t, "q", was)
	s = sit(t, 80, 24, "top", "--nats", server)
	s.sees(t, "2 of 2 answered")
	s.leaves(t, "\x03", was)                              // ctrl-C
	waitFor(t, "the fleet is printed once", func() bool { // again, where a busy machine outlasts its 10 s
		s = sit(t, 80, 24, "top", "--once", "--nats", server)
		err := <-s.ended
		if strings.Contains(s.shown.String(), "\x1b") {
			t.Errorf("--once: %q", s.shown.String())
		}
		return err == nil
	})
}
