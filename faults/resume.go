//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/subjects"
)

// Permitted costs of a stop of the registry, which an operator ends with `natsid resume`.
var (
	untilResumed = loss{
		kinds: []kind{long, short}, outcomes: []string{"503", "429", noResponders}, afterEnd: 5 * time.Second,
	}
	// The same if all workers are down at first.
	untilRestarted = loss{
		kinds: all, outcomes: []string{timeout, noResponders, "503", "429"}, afterEnd: 5 * time.Second,
	}
	// A request for a tag reads its mark, and there is no mark while the bucket is missing, or before workers have
	// lifted it.
	whileAway = loss{kinds: []kind{long, short}, outcomes: []string{"404"}}
)

// How long workers take to stop once they can reach the registry that went back, and where nats-servers have to elect
// first.
const (
	stopsWithin = 10 * time.Second
	stopsLater  = 30 * time.Second
)

// mustStop waits until an alarm names the cause and each worker reports that the registry is stopped, and requests IDs
// that no worker may issue then. Paused workers are not asked.
func (t *trial) mustStop(within time.Duration, cause subjects.Alarm, paused ...*worker) {
	began := time.Now()
	err := t.wait(within, "all workers are stopped: "+string(cause), func() bool {
		return t.raised(cause) && !slices.ContainsFunc(t.workers, func(w *worker) bool {
			return w.Running() && !slices.Contains(paused, w) && !slices.Contains(t.refused, w) && !w.isStopped()
		})
	})
	for _, w := range t.workers {
		t.logf("%s: %s", w.name, w.state())
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.logf("all workers have stopped after %v", time.Since(began).Round(time.Millisecond))
	subjectsOf := []string{long.subject(), short.subject(), strict.subject()}
	if cause == subjects.AlarmSecondRegistry {
		subjectsOf = append(subjectsOf, snowflake.subject())
	}
	for _, subject := range subjectsOf {
		for range 5 {
			if m, err := t.conn().Request(subject, nil, callerWaits); err == nil && refusal(m) == "" {
				t.violation("an ID was issued on %s while the registry was stopped", subject)
			}
		}
	}
}

// isStopped reports whether the worker reports that the registry is stopped. Workers may find another cause later, as
// where an old identity is written over an incident.
func (w *worker) isStopped() bool { return strings.Contains(w.state(), "the registry is stopped: ") }

// natsid runs a command of an operator at the hub.
func (c *cluster) natsid(args ...string) (stdout string, err error) {
	at := c.urls()[:c.fleet.servers]
	if len(at) == 0 {
		at = c.conn().Servers() // that in the only worker
	}
	cmd := exec.CommandContext(c.ctx, c.bins.natsid, append(slices.Clone(args), "--nats", c.secrets.in(at))...)
	if slices.Contains(args, wholeTable) {
		cmd.Args = append(cmd.Args, "--mysql", c.dsn())
	}
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	err = cmd.Run()
	c.logf("natsid %s took %v: %v\n%s%s", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), err,
		said.String(), out.String())
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), err
}

// wholeTable is the flag of an operator who knows that MySQL did not go back.
const wholeTable = "--table-is-whole"

// sinceThen are the flags of an operator who knows the time of the restored state, and that no worker loaded more
// since: if the marks are lost, there is no record.
var sinceThen = []string{"--since", "1m", "--by", "1000000"}

// resume resumes the registry like an operator who knows that each tag in use is in the bucket, and, if no worker does,
// of when the restored state is.
func (c *cluster) resume(flags ...string) {
	line := append([]string{"resume", "--yes", "--tags-complete"}, flags...)
	_, err := c.natsid(line...)
	if err != nil && strings.Contains(err.Error(), "say it with --since") {
		_, err = c.natsid(append(line, "--since", "1m")...)
	}
	if err != nil {
		c.Fatalf("the registry cannot be resumed: %v", err)
	}
}

// registry returns the ID of the hub's registry.
func (c *cluster) registry() string {
	out, _ := c.natsid("status", "--json") // it fails while anything is wrong
	var status struct{ Store struct{ Registry string } }
	c.must(json.Unmarshal([]byte(out), &status))
	return status.Store.Registry
}
