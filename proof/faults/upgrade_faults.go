//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// upgradeFaults go from an earlier version to this one and back. They need -old, so no other run has them.
func upgradeFaults() []fault {
	return []fault{
		{
			name: "upgrade-kv",
			summary: "three workers of an earlier version are replaced by this one, one at a time, and then rolled " +
				"back, under limits: no request is lost",
			fleet: fleet{servers: 3, workers: 3, old: true}, inject: upgradeEach, single: true, upgrade: true,
		},
		{
			name:    "upgrade-stage",
			summary: "the same while a stage copies a stream, which is replaced after the workers, and rolled back",
			fleet:   fleet{servers: 3, workers: 3, old: true}, inject: stamping(long, upgradeStage), single: true,
			upgrade: true,
		},
		{
			name:    "upgrade-mysql",
			summary: "the same with tags in MySQL",
			fleet:   fleet{servers: 3, workers: 3, mysql: true, old: true}, inject: upgradeEach, single: true,
			upgrade: true,
		},
		{
			name:    "upgrade-one",
			summary: "one process with its own nats-server is replaced by this version, and then rolled back",
			fleet:   fleet{workers: 1, old: true}, inject: upgradeEach, upgrade: true,
			losses: []loss{untilRestarted, lostInFlightLater}, gap: startWithin,
		},
	}
}

// The tag that upgrades limit, with its rate.
const (
	limitedTag  = "faults.limited"
	limitedRate = 50
)

// upgradeEach replaces each worker by one of the new version, and then by one of the old version again.
func upgradeEach(t *trial) func() {
	t.upgrade(func(string) {})
	return nil
}

// upgradeStage does so while a stage copies, which follows the workers.
func upgradeStage(t *trial, p *pipeline) {
	s := p.stage(t.urls())
	p.progress()
	t.upgrade(func(path string) {
		t.logf("the stage is replaced, too")
		t.must(s.Stop(syscall.SIGTERM, stopWithin))
		s.path = path
		s.start()
		p.progress()
	})
}

// upgrade replaces each worker by one of the new version, and then by one of the old version again, and calls replaced
// after each of both.
func (t *trial) upgrade(replaced func(path string)) {
	t.limitTag()
	for _, version := range []struct{ name, path string }{{"new", t.bins.natsid}, {"old", t.bins.old}} {
		for _, w := range t.workers {
			t.logf("%s is replaced by the %s version", w.name, version.name)
			t.must(w.Stop(syscall.SIGTERM, stopWithin))
			if code := w.Cmd.ProcessState.ExitCode(); code != 0 {
				t.violation("%s ended with exit code %d", w.name, code)
			}
			w.path = version.path
			w.restart()
			t.waitFor(startWithin, "all workers are ready", t.allReady)
			t.mustLimit()
			_, _ = t.natsid("status") // for the log
		}
		replaced(version.path)
		t.sleep(3 * time.Second)
	}
}

// limitTag gives a tag limits.
func (t *trial) limitTag() {
	_, err := t.natsid("tag", "create", limitedTag)
	t.must(err)
	_, err = t.natsid("tag", "update", limitedTag, "--max-batch", "10", "--rate", strconv.Itoa(limitedRate))
	t.must(err)
}

// mustLimit checks that the limits are in force: within a second, a tag gives few IDs.
func (t *trial) mustLimit() {
	ask := func(n string) *nats.Msg {
		m, err := t.conn().Request(namespace.Segment(limitedTag), []byte(n), callerWaits)
		t.must(err)
		return m
	}
	if m := ask("11"); refusal(m) != "400" {
		t.violation("a batch above the limit of its tag was answered with %q", refusal(m))
	}
	given := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if refusal(ask("10")) == "" {
			given += 10
		}
	}
	if given > 4*limitedRate*len(t.workers) {
		t.violation("a tag with a limit of %d IDs a second gave %d within a second", limitedRate, given)
	}
}

// buildOld returns the program of an earlier version: of a file, or of a commit or tag, which it builds into dir.
func buildOld(ctx context.Context, dir, old string) (string, error) {
	if info, err := os.Stat(old); err == nil && info.Mode().IsRegular() {
		return filepath.Abs(old)
	}
	source := filepath.Join(dir, "source")
	var errs bytes.Buffer
	clone := exec.CommandContext(ctx, "sh", "-c",
		`git clone -q --shared . "$1" && git -C "$1" checkout -q --detach "$2"`, "sh", source, old)
	if clone.Stderr = &errs; clone.Run() != nil {
		return "", fmt.Errorf("-old %s is neither a file nor a commit: %s", old, strings.TrimSpace(errs.String()))
	}
	path := filepath.Join(dir, "natsid-old")
	return path, buildSettable(ctx, dir, source, path)
}
