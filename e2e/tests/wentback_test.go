package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// An oldServer is a nats-server that can come back with an older store.
type oldServer struct {
	t           *testing.T
	addr, store string
	srv         *server.Server
}

func (o *oldServer) stop() {
	o.srv.Shutdown()
	o.srv.WaitForShutdown()
}

func (o *oldServer) start() { o.srv = startNATS(o.t, o.addr, o.store) }

// copyStore copies the store, while the server is stopped.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// An oldWorld is two workers, processes of their own, and callers on an oldServer.
type oldWorld struct {
	*oldServer
	nc      *nats.Conn
	load    *load
	dirs    []string
	https   []string
	workers []*process
}

// startOldWorld starts a server, two workers and callers, and waits for IDs.
func startOldWorld(t *testing.T) *oldWorld {
	t.Helper()
	o := &oldWorld{
		oldServer: &oldServer{t: t, addr: freePort(t), store: filepath.Join(t.TempDir(), "store")},
		dirs:      []string{t.TempDir(), t.TempDir()},
	}
	o.start()
	o.begin()
	o.waitFor("both workers are ready", o.all(func(code int, _ string) bool { return code == http.StatusOK }))
	o.nc = connectTo(t, o.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	o.load = startLoadWithin(t, time.Second, o.nc, 2, bothModes)
	t.Cleanup(func() { o.load.stop() })
	o.waitServed(20_000)
	o.waitFor("each worker has written its own key twice, so that it can say the time of a state", func() bool {
		return o.writtenTwice() == len(o.dirs)
	})
	return o
}

// writtenTwice returns how many own keys name the time of the write before.
func (o *oldWorld) writtenTwice() (keys int) {
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Second)
	defer cancel()
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, subjects.DefaultNamespace.SegmentBucket())
	if err != nil {
		return 0
	}
	all, err := kv.ListKeysFiltered(ctx, "_natsid.w.*")
	if err != nil {
		return 0
	}
	for key := range all.Keys() {
		e, err := kv.Get(ctx, key)
		if err == nil && strings.Contains(string(e.Value()), `"since"`) {
			keys++
		}
	}
	return keys
}

// begin starts the workers.
func (o *oldWorld) begin() {
	o.workers, o.https = nil, nil
	for n := range o.dirs {
		o.https = append(o.https, freePort(o.t))
		o.workers = append(o.workers, o.launch(n))
	}
}

// launch starts a worker.
func (o *oldWorld) launch(n int) *process {
	return launchProcess(o.t, "--http", o.https[n], "--nats", "nats://"+o.addr, "--data", o.dirs[n],
		"--auto-create-tags", "--max-clock-skew", "1ms", "--name", fmt.Sprint("worker-", n))
}

func (o *oldWorld) kill() {
	for _, w := range o.workers {
		w.signal(syscall.SIGKILL)
	}
}

// all returns a condition: that what each worker says of itself is as wanted.
func (o *oldWorld) all(want func(code int, ready string) bool) func() bool {
	return func() bool {
		for _, at := range o.https {
			if !want(get("http://" + at + "/readyz")) {
				return false
			}
		}
		return true
	}
}

// waitFor is [waitFor], and says on failure how the workers are.
func (o *oldWorld) waitFor(what string, cond func() bool) {
	o.t.Helper()
	met := false
	defer func() {
		if !met {
			for _, at := range o.https {
				code, body := get("http://" + at + "/readyz")
				o.t.Logf("%s: /readyz of %s says %d: %s", what, at, code, body)
			}
		}
	}()
	waitFor(o.t, what, cond)
	met = true
}

// waitServed waits until so many more segment IDs are given.
func (o *oldWorld) waitServed(n int64) {
	o.t.Helper()
	before := o.load.got["segment"].len()
	o.waitFor("segments are served", func() bool { return o.load.got["segment"].len() > before+n })
}

// backUp copies the store, and waits for loads that the copy lacks.
func (o *oldWorld) backUp() (backup string) {
	o.t.Helper()
	backup = filepath.Join(o.t.TempDir(), "backup")
	o.stop()
	copyStore(o.t, o.store, backup)
	o.start()
	o.waitMoved()
	return backup
}

// waitMoved waits for IDs of ranges that are loaded from now on.
func (o *oldWorld) waitMoved() {
	o.t.Helper()
	before := markOf(o.t, o.nc, "order")
	o.waitFor("loads", func() bool { return markOf(o.t, o.nc, "order") > before+2 })
	o.waitServed(20_000)
}

// restore puts a backup in the place of the store.
func (o *oldWorld) restore(backup string) {
	o.stop()
	copyStore(o.t, backup, o.store)
	o.start()
}

// waitStopped waits until each worker, the command and a kept alarm say that segments are stopped, and why.
func (o *oldWorld) waitStopped(cause subjects.Alarm) {
	o.t.Helper()
	began := time.Now()
	stopped := "the registry is stopped: " + string(cause)
	o.waitFor("all workers are stopped", o.all(func(code int, ready string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(ready, stopped)
	}))
	o.t.Logf("stopped after %v", time.Since(began).Round(time.Millisecond))
	if runs, err := request(o.nc, "id.segment.order", 1, patience); err == nil {
		o.t.Errorf("a caller gets %v", runs)
	}
	shown := natsid(o.t, "store", "show", "--nats", "nats://"+o.addr)
	if !strings.Contains(shown, "stopped: "+string(cause)) || !strings.Contains(shown, "natsid resume") {
		o.t.Errorf("store show says %s", shown)
	}
	o.waitFor("an alarm is kept", func() bool { return o.alarmed(cause) })
	before := o.load.got["snowflake"].len()
	o.waitFor("snowflakes are served", func() bool { return o.load.got["snowflake"].len() > before+100 })
}

// resume resumes by the command, and waits until segments are served.
func (o *oldWorld) resume(flags ...string) {
	o.t.Helper()
	args := append([]string{"resume", "--yes", "--tags-complete", "--nats", "nats://" + o.addr}, flags...)
	if code, text := run(o.t, patient(o.t), args...); code != 0 {
		o.t.Fatalf("resume ended with %d: %s", code, text)
	}
	ended := time.Now()
	o.waitFor("all workers are ready", o.all(func(code int, _ string) bool { return code == http.StatusOK }))
	if took := time.Since(ended); took > 3*time.Second+slack {
		o.t.Errorf("workers serve %v after the command", took)
	} else {
		o.t.Logf("served %v after the command", took.Round(time.Millisecond))
	}
	o.waitMoved()
}

// alarmed reports whether an alarm is kept. What is published reaches nobody whose connection is away at that moment.
func (o *oldWorld) alarmed(kind subjects.Alarm) bool {
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Second)
	defer cancel()
	kept, _ := app.KeptAlarms(ctx, buckets.OnJetStream(js), subjects.DefaultNamespace.AlarmBucket())
	return slices.ContainsFunc(kept, func(e subjects.AlarmEvent) bool { return e.Kind == kind })
}

// check fails the test if an ID was issued twice, or if an audit says so of the grants that are left.
func (o *oldWorld) check() {
	o.t.Helper()
	o.load.stop()
	o.load.check(o.t)
	if code, text := run(o.t, patient(o.t), "audit", "--nats", "nats://"+o.addr); code == 1 {
		o.t.Errorf("the audit ended with %d: %s", code, text)
	} else {
		o.t.Logf("the audit ended with %d: %s", code, text)
	}
}

func TestMarksThatAreSetBackUnderLiveWorkersStopSegmentsUntilResume(t *testing.T) {
	t.Parallel()
	o := startOldWorld(t)
	natsid(t, "tag", "create", "so", "--daily", "--nats", "nats://"+o.addr)
	backup := o.backUp()
	o.restore(backup)
	o.waitStopped(subjects.AlarmMarksWentBack)
	o.setBackADay("so")
	o.resume("--by", "1") // less than was loaded since
	// A worker that is gone may have given out the first number of today.
	first := segment.Daily.Base(time.Now().UTC()) + 1
	if runs, err := request(o.nc, "id.segment.so", 1, patience); err != nil || runs[0].First <= first {
		t.Errorf("after a mark of yesterday was raised an ID is %v, %v, want more than %d", runs, err, first)
	}
	o.check()
}

// setBackADay gives a daily tag that no worker has loaded the mark of yesterday, as a restored state has it.
func (o *oldWorld) setBackADay(tag string) {
	o.t.Helper()
	js, err := jetstream.New(o.nc)
	if err != nil {
		o.t.Fatal(err)
	}
	marks, err := js.KeyValue(o.t.Context(), subjects.DefaultNamespace.SegmentBucket())
	if err != nil {
		o.t.Fatal(err)
	}
	entry, err := marks.Get(o.t.Context(), tag)
	if err != nil {
		o.t.Fatal(err)
	}
	yesterday := segment.Daily.Base(time.Now().UTC().AddDate(0, 0, -1)) + 501
	old := regexp.MustCompile(`"mark":\d+`).ReplaceAll(entry.Value(), fmt.Appendf(nil, `"mark":%d`, yesterday))
	if _, err := marks.Put(o.t.Context(), tag, old); err != nil {
		o.t.Fatal(err)
	}
}

func TestMarksThatAreSetBackBetweenTwoLivesStopSegmentsUntilResume(t *testing.T) {
	t.Parallel()
	o := startOldWorld(t)
	backup := o.backUp()
	o.kill()
	o.restore(backup)
	o.begin()
	o.waitStopped(subjects.AlarmMarksWentBack)
	o.resume()
	o.check()
}

// The second restore brings back a state that knows nothing of the first resume, with its raise and all loads since.
func TestABackupThatIsRestoredTwiceRepeatsNoID(t *testing.T) {
	t.Parallel()
	for law, live := range map[string]bool{"under live workers": true, "and between two lives": false} {
		t.Run(law, func(t *testing.T) {
			t.Parallel()
			o := startOldWorld(t)
			backup := o.backUp()
			o.restore(backup)
			o.waitStopped(subjects.AlarmMarksWentBack)
			o.resume()
			if !live {
				o.kill()
			}
			o.restore(backup)
			if !live {
				o.begin()
			}
			o.waitStopped(subjects.AlarmMarksWentBack)
			o.resume("--since", "1h") // the workers' own keys of now are in no state that a backup holds
			o.check()
		})
	}
}

// A worker that starts after the resume has no memory of a tag that was made strict since the backup.
func TestATagThatWasMadeStrictAfterTheBackupStaysStrict(t *testing.T) {
	t.Parallel()
	o := startOldWorld(t)
	backup := o.backUp()
	natsid(t, "tag", "create", "invoice", "--order=strict", "--nats=nats://"+o.addr)
	last := int64(0)
	next := func() {
		t.Helper()
		waitFor(t, "an ID of the strict tag", func() bool {
			runs, err := request(o.nc, "id.segment.invoice", 1, patience)
			if err != nil {
				return false
			}
			if id := runs[0].First; id <= last {
				t.Errorf("ID %d after %d", id, last)
			} else {
				last = id
			}
			return true
		})
	}
	next()
	o.restore(backup)
	o.waitStopped(subjects.AlarmMarksWentBack)
	o.dirs = append(o.dirs, t.TempDir())
	o.https = append(o.https, freePort(t))
	o.workers = append(o.workers, o.launch(2))
	o.resume()
	for range 300 {
		next()
	}
	if list := natsid(t, "tag", "list", "--json", "--nats=nats://"+o.addr); !strings.Contains(list, `"strict"`) {
		t.Errorf("the tags are %s", list)
	}
	o.check()
}

func TestABucketThatIsDeletedStopsSegmentsUntilItsTagsAreRaised(t *testing.T) {
	t.Parallel()
	o := startOldWorld(t)
	js, err := jetstream.New(o.nc, jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), subjects.DefaultNamespace.SegmentBucket()); err != nil {
		t.Fatal(err)
	}
	o.waitStopped(subjects.AlarmMarksLost)
	for _, flags := range [][]string{nil, {"--since=1h"}} { // nothing is known of paces
		args := append([]string{"resume", "--yes", "--tags-complete", "--nats", "nats://" + o.addr}, flags...)
		if code, text := run(t, patient(t), args...); code != 2 || !strings.Contains(text, "--by N") {
			t.Errorf("without a distance it ended with %d: %s", code, text)
		}
	}
	o.resume("--since", "1h", "--by", "10000000")
	o.check()
}

// markOf returns the revision of the entry of a tag in the bucket of marks. Each load raises it.
func markOf(t *testing.T, nc *nats.Conn, tag string) (revision uint64) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the mark can be read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kv, err := js.KeyValue(ctx, subjects.DefaultNamespace.SegmentBucket())
		if err != nil {
			return false
		}
		entry, err := kv.Get(ctx, tag)
		if err == nil {
			revision = entry.Revision()
		}
		return err == nil
	})
	return revision
}
