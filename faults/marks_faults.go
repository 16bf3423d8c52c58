//go:build linux

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/subjects"
)

// pollOften lets ranges of the short tag stay short: there is a load every second.
var pollOften = []string{"--tag-poll", "2s", "--max-step", strconv.Itoa(shortStep)}

// marksFaults set the marks back, or change their bucket. If workers stop for it, an operator runs `natsid resume`, by
// a clock that is days off.
func marksFaults() []fault {
	return []fault{
		{
			name: "marks-restored",
			summary: "the marks are deleted and restored from a copy of 5 s ago, while a worker is paused that " +
				"continues after the resume; then all workers but that one are killed, and the nats-server, which " +
				"comes back with its store from before all that",
			fleet: fleet{servers: 1, workers: 3, flags: pollOften}, inject: restoreMarks,
			losses: []loss{natsAway, untilRestarted, whileAway},
			alarms: alarms{subjects.AlarmMarksWentBack: {2, 6}, subjects.AlarmNumberLost: {0, 3}},
			brief:  true,
		},
		{
			name: "resume-killed",
			summary: "the marks are restored, and twice for each of three nats-servers, SIGKILL strikes it and eight " +
				"runs of `natsid resume --restored` at random moments: a ninth ends within 30 s, and gives its reason",
			fleet: fleet{servers: 3, workers: 3, flags: pollOften}, inject: killResumes,
			losses: []loss{untilRestarted, whileAway, storeAwayLong}, gap: 15 * time.Second,
			watch: 8 * time.Second, recovery: 15 * time.Second,
			alarms: alarms{subjects.AlarmMarksWentBack: {1, 1}},
		},
		{
			name: "marks-refused",
			summary: "beside workers on MySQL, JetStream refuses `nats stream purge` of the marks, and natsid " +
				"refuses a worker that keeps its tags in KV, and one whose bucket of marks is a mirror",
			fleet: fleet{servers: 1, workers: 2, mysql: true, flags: pollOften}, inject: refuseMarks, brief: true,
		},
		{
			name: "marks-unfit",
			summary: "the marks get a maximum age of 2 s, and then a source with old marks: no operator can resume " +
				"before each is removed",
			fleet: fleet{servers: 1, workers: 3, flags: append(pollOften, "--auto-create-tags")}, inject: unfitMarks,
			losses: []loss{untilResumed, whileAway},
			// The source has an identity without the incident.
			alarms: alarms{
				subjects.AlarmBucketUnfit: {1, 6}, subjects.AlarmMarksLost: {0, 3}, subjects.AlarmMarksWentBack: {0, 3},
			},
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
	if t.restore(namespace.SegmentBucket(), copied) > 0 {
		// A worker was faster, and others may have seen its bucket, which is not the original one. Each reports that
		// at most once a minute. If no worker was faster, none may report it.
		t.explained = map[subjects.Alarm]int{subjects.AlarmMarksLost: t.fleet.workers}
	}
}

// restoreMarks goes back to one state twice: then no entry is of the era of the first resume, whose IDs are in use.
func restoreMarks(t *trial) func() {
	v, paused := t.servers[0], t.workers[0]
	t.useRare()
	store, copied := t.copyStore(v), t.backUp(namespace.SegmentBucket())
	t.must(paused.Signal(syscall.SIGSTOP))
	t.logf("SIGSTOP of %s", paused.name)
	t.restoreMarks(copied)
	t.addWorker(t.urls()).start() // it has no range of any tag
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack, paused)
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
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	t.resume()
	t.useMore()
	return nil
}

// killResumes kills many resumes, some of which begin an era, and servers beside them, and lets the last one end.
func killResumes(t *trial) func() {
	const atOnce = 8
	const takes = 6 * time.Second // a whole run, about
	t.useRare()
	t.restoreMarks(t.backUp(namespace.SegmentBucket()))
	t.mustStop(stopsLater, subjects.AlarmMarksWentBack)
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

func refuseMarks(t *trial) func() {
	const other subjects.Namespace = "m"
	bucket := namespace.SegmentBucket()
	if err := t.purge(bucket); err == nil {
		t.violation("the marks can be purged")
	}
	w := t.addWorker(t.urls())
	w.args = without(w.args, "--mysql")
	w.start()
	t.mustRefuse(w)
	ctx, cancel := t.within()
	defer cancel()
	_, err := t.js().CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + other.SegmentBucket(), MaxMsgsPerSubject: 1, AllowDirect: true, AllowRollup: true,
		Mirror: &jetstream.StreamSource{Name: "KV_" + bucket},
	})
	t.must(err)
	w = t.addWorker(t.urls(), "--namespace", string(other))
	w.start()
	t.mustRefuse(w)
	return nil
}

func unfitMarks(t *trial) func() {
	bucket := namespace.SegmentBucket()
	t.useRare()
	copied := t.entries(bucket)
	t.put("old", nil)
	t.useMore()
	t.logf("the marks get a maximum age of 2 s")
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 2*time.Second, 2*time.Second }))
	t.stopUnfit()
	t.sleep(4 * time.Second) // all entries have expired
	t.useMore()
	t.resumeFit(func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
	t.waitFor(startWithin, "all workers are ready", t.allReady)

	t.logf("the marks get an old copy of themselves as a source")
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) {
		c.Sources = []*jetstream.StreamSource{{
			Name: "KV_old",
			SubjectTransforms: []jetstream.SubjectTransformConfig{{
				Source: "$KV.old.>", Destination: "$KV." + bucket + ".>",
			}},
		}}
	}))
	t.put("old", copied)
	_ = t.wait(2*time.Second, "", func() bool { return bytes.Equal(t.entries(bucket)[rareTag], copied[rareTag]) })
	w := t.addWorker(t.urls())
	w.start()
	t.mustRefuse(w)
	t.useMore()
	t.stopUnfit()
	t.resumeFit(func(c *jetstream.StreamConfig) { c.Sources = nil })
	return nil
}

// stopUnfit waits until workers have stopped, and an operator can do nothing, since the bucket is unfit.
func (t *trial) stopUnfit() {
	t.mustStop(stopsWithin, subjects.AlarmBucketUnfit)
	if _, err := t.natsid("resume", "--yes"); err == nil {
		t.violation("the registry was resumed while the bucket is unfit")
	}
}

// resumeFit makes the bucket fit, and resumes.
func (t *trial) resumeFit(mend func(*jetstream.StreamConfig)) {
	t.must(t.edit(namespace.SegmentBucket(), mend))
	t.resume()
	t.useMore()
}
