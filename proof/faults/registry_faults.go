//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"time"
)

// Two registries, and registries that are wiped.
var (
	// Both sides refuse all requests until an operator has decided. Callers at the side that is out are answered over
	// the link.
	untilDecided = loss{
		kinds: all, outcomes: []string{"503", "429", "404", noResponders, timeout}, afterEnd: 5 * time.Second,
	}
	// All workers lose their numbers at one heartbeat, and no number is free but their own.
	untilRenumberedAtOnce = loss{
		kinds: []kind{snowflake}, outcomes: []string{"503", noResponders}, afterStart: 10 * time.Second,
	}

	// A leaf node is alone with its JetStream.
	atHub  = fleet{servers: 1, workers: 2, leaf: joined, flags: []string{"--replicas", "1", "--auto-create-tags"}}
	alone  = fleet{servers: 1, workers: 2, leaf: apart, flags: []string{"--replicas", "1"}}
	narrow = fleet{servers: 1, workers: 2, flags: []string{"--layout", "41+1+2", "--numbers", "0-1"}}
)

// registryFaults double a registry, or wipe that of worker numbers.
func registryFaults() []fault {
	return []fault{
		{
			name: "leaf-starts",
			summary: "a leaf node has a JetStream of its own, and a worker starts there, behind the subjects of the " +
				"hub's workers: its registry was never used, and stops alone",
			fleet: atHub, inject: startOnLeaf,
			alarms: alarms{wire.AlarmSecondRegistry: {1, 1}, wire.AlarmBucketUnfit: {0, 1}},
			brief:  true,
		},
		{
			name: "leaf-joins",
			summary: "the same with a worker that serves the leaf node alone until the link to the hub comes up: " +
				"both stop, and from 10 s later on nothing repeats; an operator keeps the hub's registry",
			fleet: alone, inject: joinLeaf,
			settle: 10 * time.Second, losses: []loss{untilDecided}, watch: 8 * time.Second,
			alarms: alarms{wire.AlarmSecondRegistry: {2, 9}},
		},
		{
			name: "layout-changed",
			summary: "`id_history` is deleted under two workers of layout 41+1+2, and three of 41+2+1 start: " +
				"they are refused",
			fleet: narrow, inject: changeLayout(deleteHistory),
			losses: []loss{untilRenumberedAtOnce}, gap: 10 * time.Second, recovery: 15 * time.Second,
			alarms: alarms{wire.AlarmNumberLost: {0, 2}}, watch: 8 * time.Second, brief: true,
		},
		{
			name: "deployment-deleted", summary: "the same with only the key `deployment` deleted",
			fleet: narrow, inject: changeLayout(deleteDeployment),
			losses: []loss{untilRenumberedAtOnce}, gap: 10 * time.Second, recovery: 15 * time.Second,
			alarms: alarms{wire.AlarmNumberLost: {0, 2}}, watch: 8 * time.Second,
		},
		{
			name: "history-wiped", summary: "`id_history` is deleted under four workers that have all four numbers",
			fleet:  fleet{servers: 1, workers: 4, flags: []string{"--layout", "41+0+2+0+12", "--numbers", "0-3"}},
			inject: func(t *trial) func() { deleteHistory(t); return nil }, lasts: 4 * time.Second,
			losses: []loss{untilRenumberedAtOnce}, gap: 5 * time.Second,
			alarms: alarms{wire.AlarmNumberLost: {0, 4}, wire.AlarmNumbersExhausted: {0, 4}},
		},
	}
}

func startOnLeaf(t *trial) func() {
	w := t.addWorker([]string{t.leafURL()})
	t.logf("%s starts on the leaf node", w.name)
	w.start()
	t.mustRefuse(w)
	return nil
}

func joinLeaf(t *trial) func() {
	t.logf("the link between leaf node and hub comes up")
	t.leafLink.Refuse(false)
	t.mustStop(stopsWithin, wire.AlarmSecondRegistry)
	t.excuse(t.workers[len(t.workers)-1])
	t.resume("--keep", t.registry())
	return nil
}

// changeLayout returns a fault that removes the record of the registry's layout, and starts workers of another
// layout.
func changeLayout(remove func(*trial)) func(*trial) func() {
	return func(t *trial) func() {
		remove(t)
		for range 3 {
			w := t.addWorker(t.urls(), "--layout", "41+2+1")
			t.logf("%s starts with layout 41+2+1", w.name)
			w.start()
			t.excuse(w)
		}
		t.sleep(5 * time.Second)
		return nil
	}
}

func deleteHistory(t *trial) {
	t.logf("id_history is deleted")
	t.deleteBucket(wire.HistoryBucket(namespace))
}

func deleteDeployment(t *trial) {
	t.logf("the key deployment is deleted")
	ctx, cancel := t.within()
	defer cancel()
	kv, err := t.js().KeyValue(ctx, wire.HistoryBucket(namespace))
	t.must(err)
	t.must(kv.Delete(ctx, "deployment"))
}
