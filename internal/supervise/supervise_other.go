//go:build unix && !linux

package supervise

import "syscall"

// Only Linux has a parent of orphans other than PID 1, and a signal at the parent's death.

func adopt() {}

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killChildren() {}
