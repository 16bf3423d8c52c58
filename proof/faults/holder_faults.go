//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/process"
	"github.com/natsid/natsid/internal/wire"
)

const (
	holders       = 20
	commands      = 4 // of them run below natsid number
	holderHorizon = 10 * time.Second
	// holderLayout has 64 numbers for programs: 20, and those that rest after a program below natsid number was killed.
	holderLayout = "41+7+12"
	notRenewed   = 4 // exit code of natsid number after it ended its program
)

// holderFaults strike programs that draw their own snowflakes, beside three workers under load. These are 26 processes,
// so no other trial runs meanwhile.
func holderFaults() []fault {
	strike := func(name, summary string, f func(*trial, []*holder)) fault {
		return fault{
			name: "holder-" + name, summary: summary + ": 20 programs draw snowflakes beside the workers",
			fleet: fleet{servers: 3, workers: 3, flags: []string{"--layout", holderLayout}},
			inject: func(t *trial) func() {
				all := t.startHolders()
				defer t.countHolders(all) // even if the trial ends early
				f(t, all)
				t.stopHolders(all)
				return nil
			},
			single: true, alone: true,
		}
	}
	restored := strike("restored", "`id_history` is restored from a copy that is 8 s old", restoreNumbers)
	restored.alarms = alarms{wire.AlarmNumberLost: {0, 6}}
	restored.losses, restored.gap, restored.single = []loss{untilRenumbered}, 15*time.Second, false
	headless := strike("no-leader", "two of three nats-servers are killed for 25 s, longer than a window", loseLeader)
	headless.losses, headless.single = []loss{natsAway, storeAwayLong, untilElected}, false
	headless.gap, headless.shortGap, headless.recovery = 45*time.Second, 60*time.Second, 15*time.Second
	return []fault{
		strike("kill", "SIGKILL of each twice, restarted at once", killHolders),
		strike("pause", "SIGSTOP of half for 25 s, longer than a window", pauseHolders),
		strike("cut", "half are cut off for 25 s, longer than a window", cutHolders),
		headless, restored,
		strike("clock", "the clocks of half are set, by 3 ms to 1 h, and corrected after 5 s", setHolderClocks),
		strike("start", "all end at once and start at once, three times, a third of them without a clean stop",
			startAtOnce),
	}
}

// A holder is a program that draws its own snowflakes, over all its processes.
type holder struct {
	*process.Process
	t          *trial
	clock      *clock
	name, path string   // path is the file of its IDs
	near       []string // URLs of NATS
	dir        string   // of its state; "" for none
	isBelow    bool     // natsid number runs it
}

// startHolders starts all at once; half of them reach NATS through the proxies, and half have a state.
func (t *trial) startHolders() (all []*holder) {
	through := t.startProxies()
	for i := range holders {
		name := fmt.Sprint("h", i+1)
		c, err := newClock(t.path(name + ".clock"))
		t.must(err)
		h := &holder{t: t, clock: c, name: name, path: t.path(name + ".ids"), isBelow: i >= holders-commands}
		if h.near = t.urls(); i%2 == 0 {
			h.near = through
		}
		if i%4 < 2 && !h.isBelow {
			h.dir = t.path(name)
			t.must(os.MkdirAll(h.dir, 0o700))
		}
		t.Cleanup(func() { h.Kill() })
		h.start()
		all = append(all, h)
	}
	t.waitHolders(all)
	return all
}

func (h *holder) start() {
	path, nats := h.t.bins.holder, strings.Join(h.near, ",")
	args := []string{"-out", h.path, "-nats", nats, "-data", h.dir, "-horizon", holderHorizon.String(), "-namespace",
		string(namespace)}
	if h.isBelow {
		args = []string{"number", "--nats", nats, "--horizon", holderHorizon.String(), "--namespace", string(namespace),
			"--", path, "-out", h.path, "-layout", holderLayout}
		path = h.t.bins.natsid
	}
	p, err := process.Start(h.t.path(h.name+".log"), h.name, []string{clockEnv + "=" + h.clock.path}, path, args...)
	h.t.must(err)
	h.Process = p
}

// drawn returns the bytes of its file.
func (h *holder) drawn() int64 {
	info, err := os.Stat(h.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// waitHolders waits until each draws IDs from now on.
func (t *trial) waitHolders(all []*holder) {
	for _, h := range all {
		before := h.drawn()
		t.waitFor(2*startWithin, h.name+" draws IDs", func() bool {
			if h.wasEnded() {
				h.start()
			}
			return h.drawn() > before
		})
	}
	t.logf("all programs draw IDs")
}

// wasEnded reports whether natsid number has ended the program, whose number could not be renewed: it may do so at any
// time. Any other end by itself ends the trial.
func (h *holder) wasEnded() bool {
	if !h.Crashed() {
		return false
	}
	if !h.isBelow || h.Cmd.ProcessState.ExitCode() != notRenewed {
		h.t.Fatalf("%s has ended by itself: %v", h.name, h.Cmd.ProcessState)
	}
	h.t.logf("natsid number has ended the program of %s", h.name)
	return true
}

func (t *trial) stopHolders(all []*holder) {
	t.waitHolders(all)
	for _, h := range all {
		if !h.wasEnded() {
			t.must(h.Stop(syscall.SIGTERM, stopWithin))
		}
	}
}

// countHolders counts their IDs with those of the workers.
func (t *trial) countHolders(all []*holder) {
	var ids int64
	for _, h := range all {
		text, err := os.ReadFile(h.path)
		t.must(err)
		for ; len(text) >= 16; text = text[16:] {
			first, last := int64(binary.BigEndian.Uint64(text)), int64(binary.BigEndian.Uint64(text[8:]))
			t.must(t.load.ledgers[snowflake].Add(first, last))
			ids += last - first + 1
		}
	}
	t.load.ids.Add(ids)
	t.note = fmt.Sprintf("%d programs drew %d IDs", len(all), ids)
}

func killHolders(t *trial, all []*holder) {
	for range 2 {
		for _, h := range all {
			h.Kill()
			h.start()
			t.sleep(100 * time.Millisecond)
		}
		t.waitHolders(all)
	}
}

// halves returns those that reach NATS through the proxies, and the others. Half of each half have a state.
func halves(all []*holder) (struck, others []*holder) {
	for i, h := range all {
		if i%2 == 0 {
			struck = append(struck, h)
		} else {
			others = append(others, h)
		}
	}
	return struck, others
}

// pauseHolders pauses half of them, while others end and take over numbers.
func pauseHolders(t *trial, all []*holder) {
	struck, others := halves(all)
	for _, h := range struck {
		h.signal(syscall.SIGSTOP)
	}
	t.sleep(2 * holderHorizon)
	replace(t, others)
	t.sleep(holderHorizon / 2)
	for _, h := range struck {
		h.signal(syscall.SIGCONT)
	}
}

// signal sends a signal to the program, and to natsid number above it, as the freezer of a container does.
func (h *holder) signal(sig syscall.Signal) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", h.Cmd.Process.Pid))
	h.t.must(err)
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			n, _ := strconv.Atoi(pid)
			h.t.must(syscall.Kill(n, sig))
		}
	}
	h.t.must(h.Signal(sig))
}

// replace kills programs and starts them without a state: they take whatever number is free.
func replace(t *trial, all []*holder) {
	for _, h := range all {
		h.Kill()
		h.dir = ""
		h.start()
	}
}

func cutHolders(t *trial, all []*holder) {
	t.eachProxy(func(p *natsproxy.Proxy) { p.Refuse(true); p.Cut() })
	t.sleep(2 * holderHorizon)
	_, others := halves(all)
	replace(t, others)
	t.sleep(holderHorizon / 2)
	t.eachProxy(func(p *natsproxy.Proxy) { p.Refuse(false) })
}

func loseLeader(t *trial, _ []*holder) {
	for _, v := range t.servers[1:] {
		v.Kill()
	}
	t.sleep(2*holderHorizon + holderHorizon/2)
	for _, v := range t.servers[1:] {
		t.startServer(v)
	}
}

func restoreNumbers(t *trial, all []*holder) {
	bucket := wire.HistoryBucket(namespace)
	copied := t.backUp(bucket)
	t.sleep(8 * time.Second)
	replace(t, all[:holders/4])
	t.restore(bucket, copied)
	t.logf("%s is restored", bucket)
	replace(t, all[holders/4:holders/2])
	t.sleep(holderHorizon)
}

func setHolderClocks(t *trial, all []*holder) {
	steps := []time.Duration{-time.Hour, -2 * time.Second, -3 * time.Millisecond, 2 * time.Second, time.Hour}
	struck, _ := halves(all)
	for i, h := range struck {
		h.clock.set(steps[i%len(steps)])
	}
	t.sleep(5 * time.Second)
	replace(t, struck[:len(steps)]) // they start with the wrong clock
	t.sleep(5 * time.Second)
	for _, h := range struck {
		h.clock.set(0)
	}
}

func startAtOnce(t *trial, all []*holder) {
	for range 3 {
		for i, h := range all {
			if i%3 == 0 {
				h.Kill()
			} else if !h.wasEnded() {
				t.must(h.Signal(syscall.SIGTERM))
				h.Expect()
			}
		}
		for _, h := range all {
			<-h.Ended
		}
		began := time.Now()
		for _, h := range all {
			h.start()
		}
		t.waitHolders(all)
		t.logf("%d programs draw IDs %v after all started at once", len(all), time.Since(began).Round(time.Millisecond))
	}
}
