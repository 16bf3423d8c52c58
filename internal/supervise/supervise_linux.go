package supervise

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of processes whose parents end, as PID 1 is.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // it fails on no supported Linux

// attributes returns those of the command: it has a group of its own, and the terminal if this process has it, and it
// ends with this process.
func attributes() *syscall.SysProcAttr {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP) // of the terminal
	return &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: err == nil && group == unix.Getpgrp(),
	}
}

// killChildren kills all children of this process.
func killChildren() {
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
