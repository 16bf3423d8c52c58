//go:build linux

package main

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

// A process is one process of a program that the runner started. Its log goes to a file that all processes of one
// name share.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended and was waited for
	asked atomic.Bool   // the runner asked it to end

	mu    sync.Mutex
	lines []string // of its standard output
}

// startProcess starts path with args. The process is killed with the runner, however that ends.
func startProcess(log, name string, env []string, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the process has its own
	// NATS_URL, NATSID_… in the runner's environment would change natsid's settings.
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS") })
	p.cmd.Env = append(inherited, env...)
	p.cmd.Stderr = file
	// A group of its own: Ctrl-C reaches only the runner, which stops processes in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return p, p.run(out)
}

func (p *process) run(out io.Reader) error {
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // cmd.ProcessState shows how it ended
		close(p.ended)
	}()
	return nil
}

// firstLine returns the first line on standard output, "" if there is none yet.
func (p *process) firstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		return ""
	}
	return p.lines[0]
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// crashed reports whether the process has ended by itself.
func (p *process) crashed() bool { return p != nil && !p.running() && !p.asked.Load() }

// kill ends the process as a power cut would, except that the system keeps written data.
func (p *process) kill() {
	if p.running() {
		p.asked.Store(true)
		_ = p.cmd.Process.Kill() // it fails only if the process has ended by itself
		<-p.ended
	}
}

// signal sends a signal to the process, which must run.
func (p *process) signal(s syscall.Signal) error {
	if !p.running() {
		return fmt.Errorf("%s has ended by itself", p.name)
	}
	return p.cmd.Process.Signal(s)
}

// stop asks the process to end, and waits for its end.
func (p *process) stop(sig syscall.Signal, within time.Duration) error {
	p.asked.Store(true)
	if err := p.signal(sig); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(within):
		return fmt.Errorf("%s has not ended %v after %v", p.name, within, sig)
	}
}
