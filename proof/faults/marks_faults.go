//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// pollOften lets ranges of the short tag stay short: there is a load every second.
var pollOften = []string{"--tag-poll", "2s", "--max-step", strconv.Itoa(shortStep)}

// marksFaults set the marks back, or let their bucket forget. Workers stop, and an operator whose clock jumps by days
// runs `natsid resume`.
func marksFaults() []fault {
	return []fault{
		{
			name: "marks-restored",
			summary: "the marks are deleted and restored from a copy of 5 s ago, while a worker is paused that " +
				"continues after the resume; then all workers but that one are killed, and the nats-server, which " +
				"comes back with its store from before all that",
			fleet: fleet{servers: 1, workers: 3, flags: pollOften}, inject: restoreMarks,
			losses: []loss{natsAway, untilRestarted, whileAway},
			// The second may be published before a caller is connected to the nats-server that comes back.
			alarms: alarms{wire.AlarmMarksWentBack: {1, 6}, wire.AlarmNumberLost: {0, 3}},
			brief:  true,
		},
		{
			name: "resume-killed",
			summary: "the marks are restored, and twice for each of three nats-servers, SIGKILL strikes it and eight " +
				"runs of `natsid resume --restored` at random moments: a ninth ends within 30 s, and gives its reason",
			fleet: fleet{servers: 3, workers: 3, flags: pollOften}, inject: killResumes,
			losses: []loss{untilRestarted, whileAway, storeAwayLong}, gap: 15 * time.Second,
			watch: 8 * time.Second, recovery: 15 * time.Second,
			alarms: alarms{wire.AlarmMarksWentBack: {1, 1}},
		},
		{
			name: "marks-unfit",
			summary: "the marks get a maximum age of 2 s, and a tag is requested that one worker has a range of; no " +
				"operator can resume before the age is removed",
			fleet: fleet{servers: 1, workers: 3, flags: append(pollOften, "--auto-create-tags")}, inject: ageMarks,
			losses: []loss{untilResumed, whileAway},
			// Entries go on expiring, the identity too, so a worker that looks later may find another proof first.
			alarms: alarms{wire.AlarmBucketUnfit: {1, 3}, wire.AlarmMarksLost: {0, 3}, wire.AlarmMarksWentBack: {0, 2}},
		},
	}
}

// lookback is how old a copy is when it comes back.
const lookback = 5 * time.Second

// useRare creates the rare tag and makes a worker load a range of it. The ranges that useMore loads later are above
// each copy made in between.
func (t *trial) useRare() {
	t.createTag(t.conn, subjects.TagCreate{Tag: rareTag, Step: 10, Start: 1})
	t.askFor(rareTag, 1)
}

func (t *trial) useMore() { t.askFor(rareTag, 60) }

// restoreMarks restores the marks from a copy of some time ago.
func (t *trial) restoreMarks(copied *backup) {
	t.useMore()
	t.sleep(lookback)
	t.logf("the marks are those of 5 s ago")
	if t.restore(wire.SegmentBucket(namespace), copied) > 0 {
		// A worker was faster, and others may have seen its bucket, which is not the original one. Each reports that
		// at most once a minute. If no worker was faster, none may report it.
		t.explained = map[wire.Alarm]int{wire.AlarmMarksLost: t.fleet.workers}
	}
}

// restoreMarks goes back to one state twice: then no entry is of the era of the first resume, whose IDs are in use.
func restoreMarks(t *trial) func() {
	v, paused := t.servers[0], t.workers[0]
	t.useRare()
	store, copied := t.copyStore(v), t.backUp(wire.SegmentBucket(namespace))
	t.must(paused.Signal(syscall.SIGSTOP))
	t.logf("SIGSTOP of %s", paused.name)
	t.restoreMarks(copied)
	t.addWorker(t.urls()).start() // it has no range of any tag
	t.mustStop(stopsWithin, wire.AlarmMarksWentBack, paused)
	t.resume()
	t.useMore()
	t.logf("SIGCONT of %s", paused.name)
	t.must(paused.Signal(syscall.SIGCONT))
	t.useMore()
	t.waitFor(startWithin, "all workers are ready", t.allReady)
	t.useMore()
	t.sleep(lookback)
	t.logf("SIGKILL of nats-server %s, and of all workers but %s", v.name, paused.name)
	v.Kill()
	for _, w := range t.workers[1:] {
		w.Kill()
	}
	t.replaceStore(v, store)
	t.startServer(v)
	for _, w := range t.workers[1:] {
		w.start()
	}
	t.mustStop(stopsWithin, wire.AlarmMarksWentBack)
	t.resume()
	t.useMore()
	return nil
}

// killResumes kills many resumes, some of which begin an era, and servers beside them, and lets the last one end.
func killResumes(t *trial) func() {
	const atOnce = 8
	const takes = 6 * time.Second // a whole run, about
	t.useRare()
	t.restoreMarks(t.backUp(wire.SegmentBucket(namespace)))
	t.mustStop(stopsLater, wire.AlarmMarksWentBack)
	var whole atomic.Int64
	for _, v := range slices.Concat(t.servers, t.servers) {
		var runs sync.WaitGroup
		for range atOnce {
			runs.Go(func() {
				ctx, cancel := context.WithTimeout(t.ctx, rand.N(takes))
				defer cancel()
				if t.command(ctx, "resume", "--yes", "--restored").Run() == nil {
					whole.Add(1)
				}
			})
		}
		runs.Go(func() {
			if out, err := t.natsid("resume", "--yes", "--restored"); err == nil && out == "" {
				t.violation("a resume ended without a word")
			}
		})
		t.sleep(rand.N(takes))
		t.logf("SIGKILL of nats-server %s", v.name)
		v.Kill()
		runs.Wait()
		t.startServer(v)
		t.waitForReplicas()
		t.askFor(rareTag, 1)
	}
	t.logf("%d of %d resumes ended before they were killed", whole.Load(), 2*atOnce*len(t.servers))
	t.resume("--restored")
	t.useMore()
	return nil
}

func ageMarks(t *trial) func() {
	bucket := wire.SegmentBucket(namespace)
	t.logf("the marks get a maximum age of 2 s")
	t.askFor(rareTag, 1)
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 2*time.Second, 2*time.Second }))
	t.mustStop(stopsWithin, wire.AlarmBucketUnfit)
	t.sleep(4 * time.Second) // all entries have expired
	t.useMore()
	if _, err := t.natsid("resume", "--yes"); err == nil {
		t.wrong("the registry was resumed while the bucket forgets entries")
	}
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge = 0 }))
	t.logf("the maximum age is removed")
	t.resume()
	t.useMore()
	return nil
}
