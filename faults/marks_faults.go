//go:build linux

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/subjects"
)

var (
	// Ranges of the short tag stay short: there is a load every second.
	pollOften   = []string{"--tag-poll", "2s", "--max-step", strconv.Itoa(shortStep)}
	onOneServer = fleet{servers: 1, workers: 3, flags: pollOften}
	onFirstUse  = fleet{servers: 1, workers: 3, flags: append(pollOften, "--auto-create-tags")}
	onOneMySQL  = fleet{servers: 1, workers: 2, mysql: true, flags: pollOften}
)

// marksFaults set the marks back, remove them, or change their bucket. If workers stop for it, an operator runs
// `natsid resume`.
func marksFaults() []fault {
	return slices.Concat(restoreFaults(), bucketFaults())
}

// restoreFaults set the marks back.
func restoreFaults() []fault {
	wentBack := alarms{subjects.AlarmMarksWentBack: {1, 3}}
	return []fault{
		{
			name: "marks-restored",
			summary: "the marks' stream is deleted and restored from a copy of 5 s ago, under the live workers; " +
				"where one makes it again in between, it is deleted once more, and each may raise `marks-lost`",
			fleet: onOneServer, inject: restoreMarks,
			losses: []loss{untilResumed, whileAway}, alarms: wentBack,
		},
		{
			name: "marks-restored-twice",
			summary: "the marks are restored from a copy of 5 s ago, and after the resume from the same copy again, " +
				"while all workers are killed",
			fleet: onOneServer, inject: restoreTwice,
			losses: []loss{untilRestarted, whileAway}, alarms: alarms{subjects.AlarmMarksWentBack: {1, 6}},
		},
		{
			name:    "marks-restored-paused",
			summary: "the same once, while a worker is paused, which resumes after the registry did",
			fleet:   onOneServer, inject: restoreWithout,
			losses: []loss{untilRestarted, whileAway}, alarms: wentBack,
		},
		{
			name:    "marks-old",
			summary: "SIGKILL of the only nats-server, which comes back with its store of 5 s ago",
			fleet:   onOneServer, inject: oldStore,
			losses: []loss{natsAway, untilRestarted},
			alarms: alarms{subjects.AlarmMarksWentBack: {1, 3}, subjects.AlarmNumberLost: {0, 3}},
			brief:  true,
		},
		{
			name: "resume-killed",
			summary: "the marks are restored, and `natsid resume --restored` is run 50 times, five at once, each " +
				"with SIGKILL at a random moment",
			fleet: onOneServer, inject: killResumes,
			losses: []loss{untilResumed, whileAway}, alarms: alarms{subjects.AlarmMarksWentBack: {1, 1}},
		},
		{
			name: "resume-server-killed",
			summary: "the marks are restored, and `natsid resume --restored` is run twice for each of three " +
				"nats-servers, with SIGKILL of the server at a random moment: each run ends within 30 s, with a reason",
			fleet: fleet{servers: 3, workers: 3, flags: pollOften}, inject: killServersOfResumes,
			losses: []loss{untilRestarted, whileAway, storeAwayLong}, gap: 15 * time.Second,
			watch: 8 * time.Second, recovery: 15 * time.Second,
			alarms: alarms{subjects.AlarmMarksWentBack: {1, 1}},
		},
	}
}

// bucketFaults purge the bucket of the marks, change its settings, or delete it.
func bucketFaults() []fault {
	return []fault{
		{
			name:    "marks-purged",
			summary: "`nats stream purge` of the marks, which JetStream refuses; then a worker without ranges starts",
			fleet:   onFirstUse, inject: purgeMarks, brief: true,
		},
		{
			name: "marks-aged",
			summary: "the marks get a maximum age of 2 s, and a tag is requested that one worker has a range of; " +
				"no operator can resume before the age is removed",
			fleet: onFirstUse, inject: ageMarks,
			losses: []loss{untilResumed, whileAway},
			alarms: alarms{subjects.AlarmBucketUnfit: {1, 3}, subjects.AlarmMarksLost: {0, 3}},
		},
		{
			name:    "marks-sourced",
			summary: "the marks' stream gets a bucket as a source where old marks are written, and loses it again",
			fleet:   onOneServer, inject: sourceMarks,
			losses: []loss{untilResumed},
			// The old copy has an identity without the incident.
			alarms: alarms{subjects.AlarmBucketUnfit: {1, 3}, subjects.AlarmMarksWentBack: {0, 3}},
		},
		{
			name:    "marks-mirrored",
			summary: "a worker starts in a namespace where the bucket of marks is a mirror: it is refused",
			fleet:   onOneServer, inject: mirrorMarks,
		},
		{
			name: "stores-mixed",
			summary: "a worker that keeps its tags in KV starts beside workers on MySQL: it is refused; " +
				"then the others are stopped, the marks deleted, the others started, and resumed with --bump 0",
			fleet: onOneMySQL, inject: mixStores,
			losses: []loss{untilRestarted, whileAway},
			alarms: alarms{subjects.AlarmMarksLost: {1, 3}},
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

// useByNewcomer starts a worker, which has no range of any tag, and uses the rare
// tag.
func (t *trial) useByNewcomer() {
	w := t.addWorker(t.urls())
	w.start()
	_ = t.wait(lookback, "", func() bool { return w.ready() || strings.Contains(w.state(), "stopped") })
	t.useMore()
}

// refuseNewcomer starts a worker, which must refuse an unfit bucket at once, and uses the rare tag.
func (t *trial) refuseNewcomer() {
	w := t.addWorker(t.urls())
	w.start()
	t.mustRefuse(w)
	t.useMore()
}

// copyMarks uses a tag, copies the marks, and uses the tag again.
func (t *trial) copyMarks() *backup {
	t.useRare()
	copied := t.backUp(namespace.SegmentBucket())
	t.useMore()
	t.sleep(lookback)
	return copied
}

// restoreMarks restores the marks from a copy.
func (t *trial) restoreMarks(copied *backup) {
	t.logf("the marks are those of 5 s ago")
	if t.restore(namespace.SegmentBucket(), copied) > 0 {
		// A worker was faster, and others may have seen its bucket, which is not the original one. Each reports that
		// at most once a minute. If no worker was faster, none may report it.
		t.explained = map[subjects.Alarm]int{subjects.AlarmMarksLost: t.fleet.workers}
	}
}

func restoreMarks(t *trial) func() {
	t.restoreMarks(t.copyMarks())
	t.useByNewcomer()
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	t.resume()
	t.useMore()
	return nil
}

// restoreTwice restores the same copy twice: then no entry is of the era of the first resume, whose IDs are in use.
func restoreTwice(t *trial) func() {
	copied := t.copyMarks()
	t.restoreMarks(copied)
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	t.resume()
	t.waitFor(startWithin, "all workers are ready", t.allReady)
	t.useMore()
	t.sleep(lookback)
	t.logf("SIGKILL of all workers")
	for _, w := range t.workers {
		w.Kill()
	}
	t.restoreMarks(copied)
	t.logf("all workers start")
	for _, w := range t.workers {
		w.start()
	}
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	t.resume()
	t.useMore()
	return nil
}

// restoreWithout restores the marks while a worker with ranges in memory is paused, and resumes without it.
func restoreWithout(t *trial) func() {
	copied := t.copyMarks()
	w := t.workers[0]
	t.logf("SIGSTOP of %s", w.name)
	t.must(w.Signal(syscall.SIGSTOP))
	t.restoreMarks(copied)
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack, w)
	t.resume()
	t.useMore()
	t.logf("SIGCONT of %s", w.name)
	t.must(w.Signal(syscall.SIGCONT))
	t.useMore()
	return nil
}

// killResumes kills many resumes, some of which begin an era, and lets the last one end.
func killResumes(t *trial) func() {
	const rounds, atOnce = 10, 5
	const takes = 6 * time.Second // a whole run, about
	t.restoreMarks(t.copyMarks())
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	ended := 0
	for range rounds {
		var runs sync.WaitGroup
		var whole atomic.Int64
		for range atOnce {
			runs.Go(func() {
				ctx, cancel := context.WithTimeout(t.ctx, rand.N(takes))
				defer cancel()
				if t.command(ctx, "resume", "--yes", "--restored").Run() == nil {
					whole.Add(1)
				}
			})
		}
		runs.Wait()
		ended += int(whole.Load())
		t.askFor(rareTag, 1)
	}
	t.logf("%d of %d resumes ended before they were killed", ended, rounds*atOnce)
	t.resume("--restored")
	t.useMore()
	return nil
}

// killServersOfResumes kills each server twice beside a resume.
func killServersOfResumes(t *trial) func() {
	t.restoreMarks(t.copyMarks())
	t.mustStop(stopsLater, subjects.AlarmMarksWentBack)
	for _, v := range slices.Concat(t.servers, t.servers) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if out, err := t.natsid("resume", "--yes", "--restored"); err == nil && out == "" {
				t.violation("a resume ended without a word")
			}
		}()
		t.sleep(rand.N(6 * time.Second))
		t.logf("SIGKILL of nats-server %s", v.name)
		v.Kill()
		<-ended
		t.startServer(v)
		t.waitForReplicas()
	}
	t.resume("--restored")
	t.useMore()
	return nil
}

func oldStore(t *trial) func() {
	v := t.servers[0]
	t.useRare()
	dir := t.copyStore(v)
	t.useMore()
	t.sleep(lookback)
	t.logf("SIGKILL of nats-server %s, which comes back with its store of 5 s ago", v.name)
	v.Kill()
	t.replaceStore(v, dir)
	t.startServer(v)
	t.useByNewcomer()
	t.mustStop(stopsWithin, subjects.AlarmMarksWentBack)
	t.resume()
	t.useMore()
	return nil
}

func purgeMarks(t *trial) func() {
	if err := t.purge(namespace.SegmentBucket()); err != nil {
		t.logf("the purge is refused: %v", err)
	} else {
		t.violation("the marks can be purged")
	}
	t.addWorker(t.urls()).restart()
	return nil
}

func ageMarks(t *trial) func() {
	bucket := namespace.SegmentBucket()
	t.logf("the marks get a maximum age of 2 s")
	t.askFor(rareTag, 1)
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 2*time.Second, 2*time.Second }))
	t.mustStop(stopsWithin, subjects.AlarmBucketUnfit)
	t.sleep(4 * time.Second) // all entries have expired
	t.askFor(rareTag, 30)
	if _, err := t.natsid("resume", "--yes"); err == nil {
		t.violation("the registry was resumed while the bucket forgets entries")
	}
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge = 0 }))
	t.logf("the maximum age is removed")
	t.resume()
	t.askFor(rareTag, 30)
	return nil
}

func sourceMarks(t *trial) func() {
	bucket := namespace.SegmentBucket()
	t.useRare()
	copied := t.entries(bucket)
	t.put("old", nil)
	t.useMore()
	t.sleep(lookback)
	t.logf("the marks get an old copy of themselves as a source")
	err := t.edit(bucket, func(c *jetstream.StreamConfig) {
		c.Sources = []*jetstream.StreamSource{{
			Name: "KV_old",
			SubjectTransforms: []jetstream.SubjectTransformConfig{{
				Source: "$KV.old.>", Destination: "$KV." + bucket + ".>",
			}},
		}}
	})
	t.must(err)
	t.put("old", copied)
	_ = t.wait(2*time.Second, "", func() bool { return bytes.Equal(t.entries(bucket)[rareTag], copied[rareTag]) })
	t.refuseNewcomer()
	t.mustStop(stopsWithin, subjects.AlarmBucketUnfit)
	t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.Sources = nil }))
	t.resume()
	t.useMore()
	return nil
}

func mirrorMarks(t *trial) func() {
	const other subjects.Namespace = "m"
	ctx, cancel := t.within()
	defer cancel()
	_, err := t.js().CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + other.SegmentBucket(), MaxMsgsPerSubject: 1, AllowDirect: true, AllowRollup: true,
		Mirror: &jetstream.StreamSource{Name: "KV_" + namespace.SegmentBucket()},
	})
	t.must(err)
	w := t.addWorker(t.urls(), "--namespace", string(other))
	w.start()
	t.mustRefuse(w)
	return nil
}

func mixStores(t *trial) func() {
	t.useRare()
	w := t.addWorker(t.urls())
	w.args = without(w.args, "--mysql")
	t.logf("%s starts on KV", w.name)
	w.start()
	t.mustRefuse(w)
	others := t.workers[:t.fleet.workers]
	t.logf("the MySQL workers are stopped, the marks deleted, and the workers started")
	for _, o := range others {
		t.must(o.Stop(syscall.SIGTERM, stopWithin))
	}
	t.useMore()
	t.deleteBucket(namespace.SegmentBucket())
	for _, o := range others {
		o.start()
	}
	t.mustStop(stopsWithin, subjects.AlarmMarksLost)
	_ = t.wait(10*time.Second, "orders, which are lost with the marks, are set during the stop", func() bool {
		_, err := t.natsid("tag", "update", strictTag, "--order=strict")
		return err == nil
	})
	t.resume("--bump", "0")
	t.useMore()
	return nil
}
