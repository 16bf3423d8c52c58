package rig

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/process"
)

// asNatsid names the environment variable that makes this program natsid: so the runner needs no other program, also
// where it was started by `go run` at a version.
const asNatsid = "CONFORMANCE_NATSID"

// Act runs natsid if this process was started as one, and then ends the process. Call it first in main.
func Act() {
	if os.Getenv(asNatsid) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
}

// startWithin is how long a start may take on a busy machine.
const startWithin = 2 * time.Minute

// StartNatsid starts a worker, a process with its folder and log in dir, which reaches NATS at url, and returns when it
// issues IDs. More flags may follow.
func StartNatsid(dir, url string, flags ...string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "natsid.log")
	args := append([]string{
		"serve", "--name", "w1", "--data", filepath.Join(dir, "w1"), "--nats", url, "--http", "",
	}, flags...)
	p, err := process.Start(log, "natsid", []string{asNatsid + "=1"}, self, args...)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startWithin); ; time.Sleep(10 * time.Millisecond) {
		switch {
		case strings.HasPrefix(p.FirstLine(), "natsid is ready"):
			return p, nil
		case !p.Running():
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("natsid has ended: %v\n%s", p.Cmd.ProcessState, text)
		case time.Now().After(end):
			p.Kill()
			return nil, fmt.Errorf("natsid issues no IDs after %v", startWithin)
		}
	}
}
