//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/testkit/process"
)

// A worker is a natsid over all its processes.
type worker struct {
	*process.Process
	c      *cluster
	name   string
	data   string // its directory; "" for none
	path   string // of its program
	args   []string
	clock  *clock
	number int    // number of its last process that became ready
	http   string // URL of its /readyz, without the path
}

// addWorker adds a worker that reaches NATS at urls; start starts it. Its own flags replace those of the fleet.
func (c *cluster) addWorker(urls []string, flags ...string) *worker {
	name := fmt.Sprint("w", len(c.workers)+1)
	clock, err := newClock(c.path(name + ".clock"))
	c.must(err)
	addr := c.port()
	w := &worker{c: c, name: name, path: c.bins.natsid, data: c.path(name), clock: clock, http: "http://" + addr}
	if c.fleet.old {
		w.path = c.bins.old
	}
	w.args = []string{"--name", name, "--http", addr, "--log-level", "debug"}
	if len(urls) > 0 {
		w.args = append(w.args, "--nats", c.secrets.in(urls))
	}
	if c.db != nil {
		w.args = append(w.args, "--mysql", c.dsn())
	}
	w.args = append(w.args, c.fleet.flags...)
	for i := 0; i < len(flags); i += 2 {
		w.args = append(without(w.args, flags[i]), flags[i], flags[i+1])
	}
	c.workers = append(c.workers, w)
	c.Cleanup(func() { w.Kill() })
	return w
}

// dsn returns the DSN for the next worker, through the link if it has one.
func (c *cluster) dsn() string {
	dsn := c.db.DSN()
	c.secrets.keepMySQL(dsn)
	if c.link != nil && (!c.fleet.oneLink || len(c.workers) == 0) {
		dsn = strings.Replace(dsn, c.db.Addr(), c.link.Addr(), 1)
	}
	return dsn
}

// start starts a process of the worker, and does not wait until it serves.
func (w *worker) start() {
	w.c.checkProcesses() // before the end of the last process is forgotten
	env := []string{clockEnv + "=" + w.clock.path}
	args := append([]string{"serve", "--data", w.data}, w.args...)
	p, err := process.Start(w.c.path(w.name+".log"), w.name, env, w.path, args...)
	w.c.must(err)
	w.Process = p
}

var readyRe = regexp.MustCompile(`^natsid is ready on .*, worker number (\d+), http://\S+/readyz`)

// waitReady waits until this process has become ready for the first time.
func (w *worker) waitReady() { w.waitReadyWithin(startWithin) }

func (w *worker) waitReadyWithin(d time.Duration) {
	w.c.waitFor(d, w.name+" is ready", func() bool {
		if !w.Running() {
			w.c.Fatalf("%s has ended: %v", w.name, w.Cmd.ProcessState)
		}
		m := readyRe.FindStringSubmatch(w.FirstLine())
		if m == nil {
			return false
		}
		w.number, _ = strconv.Atoi(m[1])
		return true
	})
}

// restart starts the next process of the worker and waits until it is ready.
func (w *worker) restart() {
	w.start()
	w.waitReady()
	w.c.logf("%s is ready, number %d", w.name, w.number)
}

// restartWithout starts a worker that must not get the number it had.
func (w *worker) restartWithout(number int) {
	w.restart()
	if w.number == number {
		w.c.wrong("%s took number %d again, though its claim was gone", w.name, number)
	}
}

// ready reports whether the worker serves both modes at this moment.
func (w *worker) ready() bool {
	if !w.Running() {
		return false
	}
	c := http.Client{Timeout: time.Second}
	r, err := c.Get(w.http + "/readyz")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// copyData gives the worker a copy of another's data directory, as cloning a
// machine does.
func (w *worker) copyData(from *worker) {
	w.c.must(os.CopyFS(w.data, os.DirFS(filepath.Clean(from.data))))
}

// without returns the arguments without a flag and its value.
func without(args []string, flag string) []string {
	i := slices.Index(args, flag)
	if i < 0 {
		return args
	}
	return slices.Concat(args[:i], args[i+2:])
}
