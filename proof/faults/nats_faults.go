//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"os"
	"slices"
	"syscall"
	"time"
)

// Permitted costs of NATS faults.
var (
	// Answers on their way through a server that dies are lost, and so are messages that it was about to route. Its
	// own clients notice: they lose their connection.
	lostOnRoute = loss{
		kinds: all, outcomes: []string{timeout, disconnected, noResponders},
		afterStart: 500 * time.Millisecond, most: 30,
	}
	// A worker behind a server that hangs is not reached until the other servers, or the worker, detect that.
	behindHungServer = loss{
		kinds: all, outcomes: []string{timeout, disconnected, noResponders}, afterStart: 10 * time.Second,
	}
	// An election takes 4 to 9 s from the loss of the leader, and the store is out of reach until then.
	untilElected = loss{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterStart: 11 * time.Second}
	// A server that resumes takes part in elections again, and may cause one.
	afterReturn = loss{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterEnd: 11 * time.Second}
	// A server that resumes routes to workers that have left it, until it has processed their departure.
	strayOnReturn = loss{
		kinds: all, outcomes: []string{timeout, noResponders}, afterEnd: 500 * time.Millisecond, most: 10,
	}
	// Without any NATS there are no requests and no answers.
	natsAway = loss{
		kinds: all, outcomes: []string{timeout, disconnected, noResponders, "503"}, afterEnd: 3 * time.Second,
	}
	// The store needs an election after the fault.
	storeAwayLong = loss{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterEnd: 12 * time.Second}
	// When all records are gone each worker loses its number at its next heartbeat that JetStream answers, and
	// acquires another after the last ID of the old one is past. Requests that it received before that are refused.
	untilRenumbered = loss{
		kinds: []kind{snowflake}, outcomes: []string{"503", noResponders}, cause: aLostNumber,
	}
)

// natsFaults strike nats-servers.
func natsFaults() []fault {
	return slices.Concat(singleServerFaults(), allServersFaults())
}

// singleServerFaults strike one nats-server of three at a time.
func singleServerFaults() []fault {
	return []fault{
		{
			name:    "nats-kill-leader",
			summary: "SIGKILL of the nats-server that leads the marks' stream, restarted after 12 s",
			fleet:   threeWorkers, inject: killServer(theLeader), lasts: 12 * time.Second,
			losses: []loss{lostOnRoute, untilElected}, shortGap: 11 * time.Second, area: onNATS, brief: true,
			single: true,
		},
		{
			name: "nats-kill-follower", summary: "SIGKILL of one that does not lead it",
			fleet: threeWorkers, inject: killServer(aFollower), lasts: 12 * time.Second,
			losses: []loss{lostOnRoute, untilElected}, shortGap: 11 * time.Second, area: onNATS, single: true,
		},
		{
			name: "nats-pause-leader", summary: "SIGSTOP of the leader for 15 s",
			fleet: threeWorkers, inject: pauseServer(theLeader), lasts: 15 * time.Second,
			losses: []loss{behindHungServer, untilElected, afterReturn, strayOnReturn}, shortGap: 11 * time.Second,
			watch: 12 * time.Second, recovery: 12 * time.Second, area: onNATS, single: true,
		},
		{
			name: "nats-pause-follower", summary: "SIGSTOP of one that does not lead",
			fleet: threeWorkers, inject: pauseServer(aFollower), lasts: 15 * time.Second,
			losses: []loss{behindHungServer, untilElected, afterReturn, strayOnReturn}, shortGap: 11 * time.Second,
			watch: 12 * time.Second, recovery: 12 * time.Second, area: onNATS, single: true,
		},
		{
			name: "nats-pause-joined", summary: "SIGSTOP of the one that all workers are connected to",
			fleet:  fleet{servers: 3, workers: 3, together: true},
			inject: pauseServer(theFirst), lasts: 15 * time.Second,
			losses: []loss{behindHungServer, untilElected, afterReturn, strayOnReturn}, gap: 5 * time.Second,
			shortGap: 11 * time.Second,
			watch:    12 * time.Second, recovery: 12 * time.Second, single: true,
		},
	}
}

// allServersFaults strike all nats-servers, at once or in turn.
func allServersFaults() []fault {
	return []fault{
		{
			name: "nats-kill-all", summary: "SIGKILL of all three, restarted after 5 s",
			fleet: threeWorkers, inject: killServers, lasts: 5 * time.Second,
			losses: []loss{natsAway, storeAwayLong}, gap: 15 * time.Second,
			watch: 8 * time.Second, recovery: 15 * time.Second, area: onNATS,
		},
		{
			name: "nats-pause-all", summary: "SIGSTOP of all three for 5 s",
			fleet: threeWorkers, inject: pauseServers, lasts: 5 * time.Second,
			losses: []loss{natsAway, storeAwayLong}, gap: 15 * time.Second,
			watch: 8 * time.Second, recovery: 15 * time.Second, area: onNATS,
		},
		{
			name: "nats-lame-duck", summary: "SIGUSR2 (lame duck mode) of each in turn, restarted: no request is lost",
			fleet: threeWorkers, inject: lameDucks, area: onNATS, single: true,
			losses: []loss{betweenLeaders},
		},
		{
			name: "nats-roll", summary: "SIGTERM of each in turn, restarted",
			fleet: threeWorkers, inject: rollServers,
			losses: []loss{{kinds: all, outcomes: []string{timeout, disconnected, noResponders}, most: 90}, storeAway},
			area:   onNATS, single: true,
		},
		{
			name: "nats-single-kill", summary: "SIGKILL of the only nats-server, restarted after 2 s",
			fleet: fleet{servers: 1, workers: 3}, inject: killServers, lasts: 2 * time.Second,
			losses: []loss{natsAway, storeAwayLong}, gap: 10 * time.Second,
			watch: 8 * time.Second, recovery: 10 * time.Second,
		},
		{
			name: "natsid-kill", summary: "SIGKILL of a natsid with its own nats-server, restarted after 1 s",
			fleet: fleet{workers: 1}, inject: killWorker, lasts: time.Second,
			losses: []loss{{
				kinds: all, outcomes: []string{timeout, disconnected, noResponders, "503"}, afterEnd: 4 * time.Second,
			}},
			gap: 10 * time.Second, brief: true,
		},
		{
			name: "jetstream-wiped",
			summary: "all servers are stopped, their stores deleted, and restarted under the live workers, " +
				"which write the marks again that they loaded from",
			fleet: threeWorkers, inject: wipe(),
			losses: []loss{natsAway, untilResumed, whileAway, untilRenumbered},
			gap:    15 * time.Second, watch: 8 * time.Second,
			alarms: alarms{
				wire.AlarmNumberLost: {3, 3}, wire.AlarmMarksLost: {1, 3}, wire.AlarmBucketUnfit: {0, 3},
			},
		},
	}
}

func theLeader(t *trial) *server {
	leader, _ := t.leader(wire.SegmentBucket(namespace))
	return leader
}

func theFirst(t *trial) *server { return t.servers[0] }

func aFollower(t *trial) *server {
	_, followers := t.leader(wire.SegmentBucket(namespace))
	return followers[0]
}

func killServer(which func(*trial) *server) func(*trial) func() {
	return func(t *trial) func() {
		v := which(t)
		t.logf("SIGKILL of nats-server %s", v.name)
		v.Kill()
		return func() { t.startServer(v) }
	}
}

func pauseServer(which func(*trial) *server) func(*trial) func() {
	return func(t *trial) func() {
		v := which(t)
		t.logf("SIGSTOP of nats-server %s", v.name)
		t.must(v.Signal(syscall.SIGSTOP))
		return func() { t.must(v.Signal(syscall.SIGCONT)) }
	}
}

func killServers(t *trial) func() {
	t.logf("SIGKILL of all nats-servers")
	for _, v := range t.servers {
		v.Kill()
	}
	return func() {
		for _, v := range t.servers {
			t.startServer(v)
		}
	}
}

func pauseServers(t *trial) func() {
	t.logf("SIGSTOP of all nats-servers")
	for _, v := range t.servers {
		t.must(v.Signal(syscall.SIGSTOP))
	}
	return func() {
		for _, v := range t.servers {
			t.must(v.Signal(syscall.SIGCONT))
		}
	}
}

func lameDucks(t *trial) func() { t.roll(syscall.SIGUSR2); return nil }

func rollServers(t *trial) func() { t.roll(syscall.SIGTERM); return nil }

func wipeServers(t *trial) func() {
	t.logf("all nats-servers are killed, and their stores deleted")
	for _, v := range t.servers {
		v.Kill()
	}
	for _, v := range t.servers {
		t.must(os.RemoveAll(v.data))
		t.must(os.MkdirAll(v.data, 0o700))
	}
	return func() {
		for _, v := range t.servers {
			t.startServer(v)
		}
	}
}

// wipe returns a fault that wipes all nats-servers, after which an operator resumes.
func wipe(flags ...string) func(*trial) func() {
	return func(t *trial) func() {
		heal := wipeServers(t)
		t.sleep(time.Second)
		heal()
		t.mustStop(stopsLater, wire.AlarmMarksLost)
		t.resume(flags...)
		return nil
	}
}
