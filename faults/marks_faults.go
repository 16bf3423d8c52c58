//go:build linux

package main

import (
	"bytes"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/subjects"
)

// What faults of the marks may cost, which an operator causes with one command.
var (
	// Workers that notice that marks went back refuse segments until all have lifted
	// their floors: what is in memory may be in another's memory, too.
	untilLifted = loss{
		kinds: []kind{long, short}, outcomes: []string{"503", "429", noResponders}, afterEnd: 5 * time.Second,
	}
	// Tags that an operator must create again, or whose store has been repaired.
	untilRepaired = loss{
		kinds: []kind{long, short}, outcomes: []string{"503", "429", "404", noResponders}, afterEnd: 15 * time.Second,
	}
	// A request for the strict tag reads its mark, and there is none while the stream is away.
	whileAway = loss{kinds: []kind{strict}, outcomes: []string{"404"}}
	// All workers are down, and refuse segments when they are up again.
	untilRaised = loss{
		kinds: all, outcomes: []string{timeout, noResponders, "503", "429"}, afterEnd: 15 * time.Second,
	}

	// Ranges of the short tag stay short: every second something is loaded.
	pollOften   = []string{"--tag-poll", "2s", "--max-step", strconv.Itoa(shortStep)}
	onOneServer = fleet{servers: 1, workers: 3, flags: pollOften}
	onFirstUse  = fleet{servers: 1, workers: 3, flags: append(pollOften, "--auto-create-tags")}
	onOneMySQL  = fleet{servers: 1, workers: 2, mysql: true, flags: pollOften}
)

// marksFaults set the marks back, remove them, or change their bucket.
func marksFaults() []fault {
	wentBack := alarms{subjects.AlarmStoreWentBack: {1, 9}}
	return []fault{
		{
			name: "marks-restored",
			summary: "the marks' stream is deleted and restored from a copy of 5 s ago, under the live workers; " +
				"where one makes it again in between, it is deleted once more, and each may raise `bucket-changed`",
			fleet: onOneServer, inject: restoreMarks,
			losses: []loss{untilLifted, whileAway}, recovery: 20 * time.Second, alarms: wentBack,
		},
		{
			name: "marks-restored-killed",
			summary: "SIGKILL of all workers; the marks are restored from a copy of 5 s ago, and the workers " +
				"started: they refuse segments until an operator raises all tags",
			fleet: onOneServer, inject: restoreMarksOf(killAll, raiseAll),
			losses: []loss{untilRaised}, recovery: 20 * time.Second, alarms: wentBack,
		},
		{
			name:    "marks-restored-stopped",
			summary: "the same with SIGTERM: they know what they loaded, and repair the marks themselves",
			fleet:   onOneServer, inject: restoreMarksOf(stopAll, nil),
			losses: []loss{untilRaised}, recovery: 20 * time.Second, alarms: wentBack,
		},
		{
			name:    "marks-old",
			summary: "SIGKILL of the only nats-server, which comes back with its store of 5 s ago",
			fleet:   onOneServer, inject: oldStore,
			losses: []loss{natsAway, untilRaised}, recovery: 20 * time.Second,
			alarms: alarms{subjects.AlarmStoreWentBack: {1, 9}, subjects.AlarmNumberLost: {0, 3}},
			brief:  true,
		},
		{
			name:    "marks-purged",
			summary: "`nats stream purge` of the marks, which JetStream refuses; then a worker without ranges starts",
			fleet:   onFirstUse, inject: purgeMarks, brief: true,
		},
		{
			name: "marks-aged",
			summary: "the marks get a maximum age of 2 s, and a tag is requested that one worker has a range of; " +
				"then the age is removed, and the tags are created again with a start above",
			fleet: onFirstUse, inject: ageMarks,
			losses: []loss{untilRepaired}, recovery: 20 * time.Second,
			alarms: alarms{subjects.AlarmBucketChanged: {1, 9}, subjects.AlarmStoreWentBack: {0, 9}},
		},
		{
			name:    "marks-sourced",
			summary: "the marks' stream gets a bucket as a source where old marks are written, and loses it 5 s later",
			fleet:   onOneServer, inject: sourceMarks, lasts: 5 * time.Second,
			losses: []loss{untilRepaired}, recovery: 20 * time.Second,
			alarms: alarms{subjects.AlarmBucketChanged: {1, 9}, subjects.AlarmStoreWentBack: {0, 9}},
		},
		{
			name:    "marks-mirrored",
			summary: "a worker starts in a namespace where the bucket of marks is a mirror: it is refused",
			fleet:   onOneServer, inject: mirrorMarks,
		},
		{
			name: "stores-mixed",
			summary: "a worker that keeps its tags in KV starts beside workers on MySQL: it is refused; " +
				"then the others are stopped, the marks deleted, and the others started",
			fleet: onOneMySQL, inject: mixStores,
			losses: []loss{untilRaised, untilRepaired}, recovery: 20 * time.Second,
			alarms: alarms{subjects.AlarmStoreWentBack: {0, 9}, subjects.AlarmBucketChanged: {0, 9}},
		},
	}
}

// lookback is how old a copy is when it comes back.
const lookback = 5 * time.Second

// useRare creates the rare tag and lets a worker load a range of it. What useMore
// loads later is above each copy that is made in between.
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
	w.asked.Store(true) // it may end, where the bucket is not to be used
	_ = t.wait(lookback, "", func() bool { return w.ready() || !w.running() })
	t.useMore()
}

func restoreMarks(t *trial) func() {
	t.useRare()
	copied := t.backUp(namespace.SegmentBucket())
	t.useMore()
	t.sleep(lookback)
	t.logf("the marks are those of 5 s ago")
	if t.restore(namespace.SegmentBucket(), copied) > 0 {
		// A worker was faster, and the others have seen its bucket: it is not the original one. Each says so once a
		// minute at most. Without such a refusal nobody may say so.
		t.explained = map[subjects.Alarm]int{subjects.AlarmBucketChanged: t.fleet.workers}
	}
	t.useByNewcomer()
	return nil
}

// restoreMarksOf returns a fault that ends all workers, restores the marks, starts
// the workers, and lets an operator repair what they refuse to.
func restoreMarksOf(end func(*trial), repair func(*trial)) func(*trial) func() {
	return func(t *trial) func() {
		t.useRare()
		copied := t.backUp(namespace.SegmentBucket())
		t.useMore()
		t.sleep(lookback)
		end(t)
		t.restore(namespace.SegmentBucket(), copied)
		t.logf("the marks are those of 5 s ago, and all workers start")
		for _, w := range t.workers {
			w.start()
		}
		t.waitFor(startWithin, "the marks are refused, or all workers ready", func() bool {
			return t.raised(subjects.AlarmStoreWentBack) || t.allReady()
		})
		t.useMore()
		if repair != nil {
			t.sleep(2 * time.Second)
			for _, w := range t.workers {
				t.logf("%s: %s", w.name, w.state())
			}
			repair(t)
			t.useMore()
		}
		return nil
	}
}

func killAll(t *trial) {
	t.logf("SIGKILL of all workers")
	for _, w := range t.workers {
		w.kill()
	}
}

func stopAll(t *trial) {
	t.logf("SIGTERM of all workers")
	for _, w := range t.workers {
		t.must(w.stop(syscall.SIGTERM, stopWithin))
	}
}

func raiseAll(t *trial) { t.raiseAll(1_000_000_000) }

func oldStore(t *trial) func() {
	v := t.servers[0]
	t.useRare()
	dir := t.copyStore(v)
	t.useMore()
	t.sleep(lookback)
	t.logf("SIGKILL of nats-server %s, which comes back with its store of 5 s ago", v.name)
	v.kill()
	t.replaceStore(v, dir)
	t.startServer(v)
	t.useByNewcomer()
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
	t.sleep(6 * time.Second)
	t.askFor(rareTag, 30)
	return func() {
		t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.MaxAge = 0 }))
		t.logf("the maximum age is removed")
		t.createTagsAgain()
		if t.wait(lookback, "", t.allReady) != nil { // the witnesses are gone as well
			t.logf("%s: %s", t.workers[0].name, t.workers[0].state())
			raiseAll(t)
		}
	}
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
	t.useByNewcomer()
	return func() { t.must(t.edit(bucket, func(c *jetstream.StreamConfig) { c.Sources = nil })) }
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
		t.must(o.stop(syscall.SIGTERM, stopWithin))
	}
	t.useMore()
	t.deleteBucket(namespace.SegmentBucket())
	for _, o := range others {
		o.restart()
	}
	t.useMore()
	return nil
}
