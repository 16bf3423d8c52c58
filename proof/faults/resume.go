//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/natsid/natsid/internal/wire"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Permitted costs of a stop of the registry, which an operator ends with `natsid resume`.
var (
	untilResumed = loss{
		kinds: []kind{long, short}, outcomes: []string{"503", "429", noResponders}, afterEnd: 5 * time.Second,
	}
	// The same if all workers, or a server, are down at first.
	untilRestarted = loss{
		kinds: all, outcomes: []string{timeout, disconnected, noResponders, "503", "429"}, afterEnd: 5 * time.Second,
	}
	// A request for a tag reads its mark, and there is no mark while the bucket is missing, or before workers have
	// written it again.
	whileAway = loss{kinds: []kind{long, short}, outcomes: []string{"404"}}
)

// How long workers take to stop once they can reach the registry that went back, and where nats-servers have to elect
// first; and how long a command of an operator may take, whatever NATS does.
const (
	stopsWithin   = 10 * time.Second
	stopsLater    = 30 * time.Second
	commandWithin = 30 * time.Second
)

// mustStop waits until an alarm names the cause and each worker reports that the registry is stopped, and requests IDs
// that no worker may issue then. Paused workers are not asked.
func (t *trial) mustStop(within time.Duration, cause wire.Alarm, paused ...*worker) {
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
	if cause == wire.AlarmSecondRegistry {
		subjectsOf = append(subjectsOf, snowflake.subject())
	}
	for _, subject := range subjectsOf {
		for range 5 {
			if m, err := t.conn().Request(subject, nil, callerWaits); err == nil && refusal(m) == "" {
				t.wrong("an ID was issued on %s while the registry was stopped", subject)
			}
		}
	}
}

// isStopped reports whether the worker reports that the registry is stopped. Workers may find another cause later, as
// where an old identity is written over an incident.
func (w *worker) isStopped() bool { return strings.Contains(w.state(), "the registry is stopped: ") }

// command returns a command of an operator at the hub, which ends with ctx. The operator's clock jumps by days.
func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	at := c.urls()[:c.fleet.servers]
	if len(at) == 0 {
		at = c.conn().Servers() // that in the only worker
	}
	cmd := exec.CommandContext(ctx, c.bins.natsid, append(slices.Clone(args), "--nats", c.secrets.in(at))...)
	c.operator.set(time.Duration(rand.N(21)-10) * 24 * time.Hour)
	cmd.Env = append(os.Environ(), clockEnv+"="+c.operator.path)
	return cmd
}

// natsid runs a command of an operator, which must end in time and give a reason if it fails.
func (c *cluster) natsid(args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*commandWithin)
	defer cancel()
	cmd := c.command(ctx, args...)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began).Round(time.Millisecond)
	c.logf("natsid %s took %v: %v\n%s%s", strings.Join(args, " "), took, err, said.String(), out.String())
	if took > commandWithin {
		c.violation("natsid %s took %v, more than %v", strings.Join(args, " "), took, commandWithin)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), err
}

// resume resumes the registry by one command.
func (c *cluster) resume(flags ...string) {
	if _, err := c.natsid(append([]string{"resume", "--yes"}, flags...)...); err != nil {
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
