package mysqltest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// dieWithUs makes the system end the server with the test process, however
// that ends: a test that times out runs no cleanup.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

const canPause = true

// pause stops all threads of the process and returns once they stand still, which is some time after the signal.
func pause(p *os.Process, within time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(within); !still(p.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still runs after %v", p.Pid, within)
		}
	}
	return nil
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// still reports whether all threads of the process are stopped.
func still(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state …, and the name may hold anything
		if i := bytes.LastIndexByte(stat, ')'); i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
			return false
		}
	}
	return len(threads) > 0
}
