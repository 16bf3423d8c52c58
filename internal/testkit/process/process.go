// Package process runs programs for tests and tools that stop, kill and pause them.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is one process of a program that the runner started. Its log goes to a file that all processes of one
// name share. A nil Process has ended.
type Process struct {
	Name  string
	Cmd   *exec.Cmd
	Ended chan struct{} // closed when the process has ended and was waited for
	asked atomic.Bool   // the runner asked it to end

	mu    sync.Mutex
	lines []string // of its standard output
}

// Start starts path with args. The process is killed with the runner, however that ends, where the system can do that.
func Start(log, name string, env []string, path string, args ...string) (*Process, error) {
	p := &Process{Name: name, Cmd: exec.Command(path, args...), Ended: make(chan struct{})}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the process has its own
	// NATS_URL, NATSID_… in the runner's environment would change natsid's settings.
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS") })
	p.Cmd.Env = append(inherited, env...)
	p.Cmd.Stderr = file
	isolate(p.Cmd)
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return p, p.run(out)
}

func (p *Process) run(out io.Reader) error {
	if err := p.Cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
		}
		_ = p.Cmd.Wait() // Cmd.ProcessState shows how it ended
		close(p.Ended)
	}()
	return nil
}

// FirstLine returns the first line on standard output, "" if there is none yet.
func (p *Process) FirstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		return ""
	}
	return p.lines[0]
}

// Running reports whether the process was started and has not ended.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Expect declares that the process may end by itself.
func (p *Process) Expect() { p.asked.Store(true) }

// Crashed reports whether the process has ended by itself.
func (p *Process) Crashed() bool { return p != nil && !p.Running() && !p.asked.Load() }

// Kill ends the process as a power cut would, except that the system keeps written data.
func (p *Process) Kill() {
	if p.Running() {
		p.asked.Store(true)
		_ = p.Cmd.Process.Kill() // it fails only if the process has ended by itself
		<-p.Ended
	}
}

// Signal sends a signal to the process, which must run.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s has ended by itself", p.Name)
	}
	return p.Cmd.Process.Signal(s)
}

// Stop asks the process to end, and waits for its end.
func (p *Process) Stop(sig syscall.Signal, within time.Duration) error {
	p.asked.Store(true)
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.Ended:
		return nil
	case <-time.After(within):
		return fmt.Errorf("%s has not ended %v after %v", p.Name, within, sig)
	}
}
