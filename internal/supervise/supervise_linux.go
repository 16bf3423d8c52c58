package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is how often the lease is read. A process that was paused reads it at once when it continues.
	lookEvery = 100 * time.Millisecond
	// notice is how long before the end of the lease the command receives SIGTERM. For a lease below 30 s it is a third
	// of the lease.
	notice = 10 * time.Second
	// cleanWithin is how long processes that a command left behind may take to end after SIGKILL.
	cleanWithin = 2 * time.Second
)

// Run runs the command to its end, and passes on the signals that this process receives. It reaps all children of
// this process, which may be PID 1; so nothing else in it may start a child. The error is that of the start.
func (c *Command) Run() (End, error) {
	// Orphans of the command become children of this process, as of PID 1. Every supported Linux can do that.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	runtime.LockOSThread() // Pdeathsig kills the command when this thread ends
	defer runtime.UnlockOSThread()
	received := make(chan os.Signal, 64)
	signal.Notify(received, caught()...)
	defer signal.Stop(received)
	sys := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	tty, leads := terminal()
	if leads {
		sys.Foreground, sys.Ctty = true, int(tty.Fd())
	}
	p, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Env: c.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: sys,
	})
	_ = tty.Close() // nil if there is none
	if err != nil {
		return End{}, err
	}
	w := &watch{Command: c, pid: p.Pid, leads: leads}
	main, all := w.reap()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case sig := <-received:
			w.pass(sig.(syscall.Signal))
		case <-tick.C:
			w.look(time.Now())
			w.release()
		case status := <-main:
			return w.end(status, all), nil
		}
	}
}

// caught returns the signals to pass on. It leaves out signals that this process ignores, such as SIGHUP under
// nohup, since the command ignores them, too; those of Go's scheduler and of children; and those that stop a job.
//
// The command is in the process group of its supervisor, as a shell expects of a job: Ctrl-Z stops both, and `fg` or
// `bg` continues both. Where the supervisor leads the session of the terminal, as in a container, there is no such
// shell. Then the command has a group of its own in the foreground, which alone receives the signals of keys, and
// Ctrl-Z stops nothing.
func caught() (all []os.Signal) {
	left := []syscall.Signal{syscall.SIGURG, syscall.SIGCHLD, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
	for s := syscall.Signal(1); s <= 64; s++ {
		if !signal.Ignored(s) && !slices.Contains(left, s) {
			all = append(all, s)
		}
	}
	return all
}

// A stage is what was done to a command whose lease is not renewed.
type stage int

const (
	renewed stage = iota
	warned
	terminated
	killed
)

// A watch is a running command and its lease.
type watch struct {
	*Command
	pid     int
	leads   bool          // this process leads the session of the terminal
	until   time.Time     // end of the lease when it was last read
	left    time.Duration // length of the lease at its last renewal
	stage   stage
	because error // why the command was signaled to end
}

// reap waits for all children of this process. main receives the status of the command, and all is closed when there
// is no child any more.
func (w *watch) reap() (main chan syscall.WaitStatus, all chan struct{}) {
	main, all = make(chan syscall.WaitStatus, 1), make(chan struct{})
	go func() {
		defer close(all)
		for {
			var status syscall.WaitStatus
			switch pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil); {
			case err == syscall.ECHILD:
				return
			case err == nil && status.Stopped():
				if w.leads && status.StopSignal() == syscall.SIGTSTP {
					_ = syscall.Kill(-w.pid, syscall.SIGCONT)
				}
			case err == nil && pid == w.pid:
				main <- status
			}
		}
	}()
	return main, all
}

// release continues a command that Ctrl-Z has stopped by half. A shell that has begun a child with vfork waits in the
// kernel, in state D, until the child runs a program. If Ctrl-Z stops the child first, the shell cannot stop, so that
// reap does not see it. Where the shell only waits for a disk, SIGCONT changes nothing.
func (w *watch) release() {
	if !w.leads {
		return
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.pid))
	if strings.Contains(string(stat), ") D ") {
		_ = syscall.Kill(-w.pid, syscall.SIGCONT)
	}
}

// pass passes a signal on. It drops SIGPIPE, which is about the output of this process, and the signal of a key
// such as Ctrl-C, which the terminal has sent to the command itself.
func (w *watch) pass(sig syscall.Signal) {
	isKey := sig == syscall.SIGINT || sig == syscall.SIGQUIT
	if sig != syscall.SIGPIPE && !(isKey && isForeground()) {
		_ = syscall.Kill(w.pid, sig) // it fails once the command has ended
	}
}

// isForeground reports whether there is a terminal that sends the signals of keys to this process group.
func isForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	return isBehind(tty)
}

// isBehind reports whether this process group is in the foreground of tty.
func isBehind(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// terminal opens the terminal; nil if there is none. leads reports whether this process leads the session, with its
// group in the foreground.
func terminal() (tty *os.File, leads bool) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return nil, false
	}
	session, err := unix.Getsid(0)
	return tty, err == nil && session == os.Getpid() && isBehind(tty)
}

// look compares the lease with the wall clock, by which the command makes IDs. It asks the command to end some time
// before the lease does, and kills it once the lease is over.
func (w *watch) look(now time.Time) {
	until, lost := w.Until()
	left := until.Sub(now.Round(0))
	if until.After(w.until) {
		w.until, w.left = until, left
		if w.stage == warned {
			w.stage = renewed
		}
	}
	at := until.UTC().Format(time.TimeOnly)
	switch {
	case w.stage < killed && (lost != nil || left <= 0):
		if w.stage, w.because = killed, lost; lost == nil {
			w.because = fmt.Errorf("the window ended at %s and was not renewed", at)
		}
		_ = syscall.Kill(w.pid, syscall.SIGKILL)
		w.Say("%v: SIGKILL for the command", w.because)
	case w.stage < terminated && left <= min(notice, w.left/3):
		w.stage, w.because = terminated, fmt.Errorf("the window ends at %s and could not be renewed", at)
		w.pass(syscall.SIGTERM)
		w.Say("%v: SIGTERM for the command", w.because)
	case w.stage < warned && left <= w.left/2:
		w.stage = warned
		w.Say("the number cannot be renewed: the command is ended before %s unless NATS answers until then", at)
	}
}

// end kills the processes that the command has left behind, which are children of this process now, and reaps them.
func (w *watch) end(status syscall.WaitStatus, all chan struct{}) End {
	e := End{Code: status.ExitStatus(), Because: w.because}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	for late := time.After(cleanWithin); ; {
		select {
		case <-all:
			until, lost := w.Until()
			e.Whole = lost == nil && time.Now().Before(until)
			return e
		case <-late:
			w.Say("a process of the command is left, which may make IDs")
			return e
		case <-time.After(10 * time.Millisecond):
		}
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, name := range lists {
			list, _ := os.ReadFile(name)
			for pid := range strings.FieldsSeq(string(list)) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
		}
	}
}
