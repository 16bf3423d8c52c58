//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"time"
)

// diskFaults fill a disk to the last byte.
func diskFaults() []fault {
	disks := fleet{servers: 3, workers: 3, disks: true}
	leading, following := disks, disks // on n3 is a small disk
	leading.marksOn, following.marksOn = "n3", "n1"
	return []fault{
		{
			name: "disk-full-worker", summary: "the disk of one worker's state file is full for 10 s",
			fleet: disks, inject: fillWorker, lasts: 10 * time.Second,
			losses: []loss{{
				kinds: []kind{snowflake}, outcomes: []string{"503"}, afterStart: 5 * time.Second, most: 60,
			}},
			// One for worker.json, and one for lineage.json if that is written during the fault.
			alarms: alarms{wire.AlarmStateFile: {1, 2}}, single: true,
		},
		{
			name: "disk-full-nats",
			summary: "the disk of the JetStream of one nats-server that does not lead the marks' stream is full " +
				"for 10 s; then it is freed, and the server restarted",
			fleet: following, inject: fillServer, lasts: 10 * time.Second,
			losses: []loss{lostOnRoute, lostAsServerReturns}, single: true,
		},
		{
			// Its JetStream ends, and hands over leadership, except of the stream that it could not write.
			name:    "disk-full-leader",
			summary: "the same of the one that leads it",
			fleet:   leading, inject: fillServer, lasts: 10 * time.Second,
			losses: []loss{lostOnRoute, untilElected, lostAsServerReturns}, shortGap: 11 * time.Second, single: true,
		},
	}
}

// The server is killed at the end of the fault: it routes no message until it knows its peers again.
var lostAsServerReturns = loss{
	kinds: all, outcomes: []string{timeout, disconnected, noResponders}, afterEnd: time.Second, most: 30,
}

func fillWorker(t *trial) func() {
	free, err := fillDisk(t.workers[0].data)
	t.must(err)
	return func() { t.must(free()) }
}

func fillServer(t *trial) func() {
	v := t.servers[len(t.servers)-1]
	free, err := fillDisk(v.data)
	t.must(err)
	return func() {
		t.must(free())
		v.Kill()
		t.startServer(v)
	}
}
