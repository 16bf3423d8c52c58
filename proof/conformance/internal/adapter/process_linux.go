package adapter

import (
	"os/exec"
	"syscall"
)

// isolate gives the process a group of its own, for programs that start others, and makes the system end it with the
// runner.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
