package process

import (
	"os/exec"
	"syscall"
)

// isolate gives the process a group of its own, so that Ctrl-C reaches only the runner, which stops processes in order;
// and makes the system end it with the runner.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
