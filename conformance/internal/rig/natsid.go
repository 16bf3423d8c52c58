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

// role names the environment variable that makes this program another one: so the runner needs no other program, also
// where it was started by `go run` at a version.
const role = "CONFORMANCE_ROLE"

// The roles of this program.
const (
	asNatsid     = "natsid"
	asNatsServer = "nats-server"
)

// Act runs another program if this process was started as one, and then ends the process. Call it first in main.
func Act() {
	switch os.Getenv(role) {
	case asNatsid:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
	case asNatsServer:
		serve(os.Args[1:])
	}
}

// startAs starts this program as another.
func startAs(as, log, name string, args ...string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.Start(log, name, []string{role + "=" + as}, self, args...)
}

const (
	startWithin = 2 * time.Minute // on a busy machine
	stopWithin  = 30 * time.Second
)

// A Natsid is a worker, over all its processes.
type Natsid struct {
	*process.Process
	dir, name string
	args      []string
}

// NewNatsid returns a worker with a folder below dir, which reaches NATS at urls. More flags may follow.
func NewNatsid(dir, name string, urls []string, flags ...string) *Natsid {
	args := append([]string{
		"serve", "--name", name, "--data", filepath.Join(dir, name), "--nats", strings.Join(urls, ","), "--http", "",
	}, flags...)
	return &Natsid{dir: dir, name: name, args: args}
}

// Start starts a process of the worker, and returns when it issues IDs.
func (n *Natsid) Start() (err error) {
	log := filepath.Join(n.dir, n.name+".log")
	if n.Process, err = startAs(asNatsid, log, n.name, n.args...); err != nil {
		return err
	}
	for end := time.Now().Add(startWithin); ; time.Sleep(10 * time.Millisecond) {
		switch {
		case strings.HasPrefix(n.FirstLine(), "natsid is ready"):
			return nil
		case !n.Running():
			text, _ := os.ReadFile(log)
			return fmt.Errorf("natsid %s has ended: %v\n%s", n.name, n.Cmd.ProcessState, text)
		case time.Now().After(end):
			return fmt.Errorf("natsid %s issues no IDs after %v", n.name, startWithin)
		}
	}
}

// Stop stops the worker as its operator does.
func (n *Natsid) Stop() error {
	if !n.Running() {
		return nil
	}
	return n.Process.Stop(syscall.SIGTERM, stopWithin)
}
