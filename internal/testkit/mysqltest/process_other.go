//go:build !linux

package mysqltest

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

func dieWithUs(*exec.Cmd) {}

const canPause = false

func pause(*os.Process, time.Duration) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
