//go:build !linux

package pgtest

import "os/exec"

func restrict(cmd *exec.Cmd, dir string) { cmd.Dir = dir }
