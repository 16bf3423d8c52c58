//go:build linux

package main

import (
	"os"
	"syscall"
	"time"

	"github.com/natsid/natsid/subjects"
)

// What troubles of NATS may cost.
var (
	// Answers under way over a server that dies are lost, and so is what it was
	// about to route. Callers on it know: their connection is gone.
	routedAlong = tolerance{kinds: all, what: []string{silent, cutOff, nobody}, begin: 500 * time.Millisecond, most: 30}
	// Behind a server that hangs a worker is not reached until the server, or
	// the worker, is missed.
	behindIt = tolerance{kinds: all, what: []string{silent, cutOff, nobody}, begin: 10 * time.Second}
	// An election takes 4 to 9 s from the loss of the leader, and the store is
	// away for so long.
	untilElected = tolerance{kinds: []kind{short}, what: []string{"503", "429"}, begin: 11 * time.Second}
	// A server that goes on takes part in elections again, and may cause one.
	afterReturn = tolerance{kinds: []kind{short}, what: []string{"503", "429"}, end: 11 * time.Second}
	// Without any NATS nothing can be asked or answered.
	withoutNATS = tolerance{kinds: all, what: []string{silent, cutOff, nobody, "503"}, end: 3 * time.Second}
)

func natsFaults() []fault {
	return []fault{
		{
			name: "nats-kill-leader", does: "SIGKILL of the nats-server that leads the marks' stream, started again after 12 s",
			cast: threeWorkers, hold: 12 * time.Second, inject: killServer(theLeader), may: []tolerance{routedAlong, untilElected}, shortGap: 11 * time.Second, area: onNATS, brief: true,
		},
		{
			name: "nats-kill-follower", does: "SIGKILL of one that does not",
			cast: threeWorkers, hold: 12 * time.Second, inject: killServer(aFollower), may: []tolerance{routedAlong, untilElected}, shortGap: 11 * time.Second, area: onNATS,
		},
		{
			name: "nats-pause-leader", does: "SIGSTOP of the leader for 15 s",
			cast: threeWorkers, hold: 15 * time.Second, inject: pauseServer(theLeader), may: []tolerance{behindIt, untilElected, afterReturn}, shortGap: 11 * time.Second, calm: 12 * time.Second, back: 12 * time.Second, area: onNATS,
		},
		{
			name: "nats-pause-follower", does: "SIGSTOP of one that does not lead",
			cast: threeWorkers, hold: 15 * time.Second, inject: pauseServer(aFollower), may: []tolerance{behindIt, untilElected, afterReturn}, shortGap: 11 * time.Second, calm: 12 * time.Second, back: 12 * time.Second, area: onNATS,
		},
		{
			name: "nats-kill-all", does: "SIGKILL of all three, started again after 5 s",
			cast: threeWorkers, hold: 5 * time.Second, inject: killServers, may: []tolerance{withoutNATS, withoutStoreLong}, gap: 15 * time.Second, calm: 8 * time.Second, back: 15 * time.Second, area: onNATS,
		},
		{
			name: "nats-pause-all", does: "SIGSTOP of all three for 5 s",
			cast: threeWorkers, hold: 5 * time.Second, inject: pauseServers, may: []tolerance{withoutNATS, withoutStoreLong}, gap: 15 * time.Second, calm: 8 * time.Second, back: 15 * time.Second, area: onNATS,
		},
		{
			name: "nats-lame-duck", does: "SIGUSR2 (lame duck) of each in turn, started again: nothing is lost",
			cast: threeWorkers, inject: lameDucks, area: onNATS,
		},
		{
			name: "nats-roll", does: "SIGTERM of each in turn, started again",
			cast: threeWorkers, inject: rollServers, may: []tolerance{{kinds: all, what: []string{silent, cutOff, nobody}, most: 90}, withoutStore}, area: onNATS,
		},
		{
			name: "nats-single-kill", does: "SIGKILL of the only nats-server, started again after 2 s",
			cast: cast{servers: 1, workers: 3}, hold: 2 * time.Second, inject: killServers, may: []tolerance{withoutNATS, withoutStoreLong}, gap: 10 * time.Second, calm: 8 * time.Second, back: 10 * time.Second,
		},
		{
			name: "natsid-kill", does: "SIGKILL of a natsid with its own nats-server, started again after 1 s",
			cast: cast{workers: 1}, hold: time.Second, inject: killWorker, may: []tolerance{{kinds: all, what: []string{silent, cutOff, nobody, "503"}, end: 4 * time.Second}}, gap: 10 * time.Second, brief: true,
		},
		{
			name: "jetstream-wiped", does: "all servers stopped, their stores deleted, and started again under the live workers; the tags are made again with a start above",
			cast: threeWorkers, hold: time.Second, inject: wipe, gap: 15 * time.Second, back: 25 * time.Second, calm: 15 * time.Second,
			may:    []tolerance{withoutNATS, withoutStoreLong, {kinds: []kind{short}, what: []string{"404"}, end: 5 * time.Second}, allLoseTheirNumbers},
			alarms: alarms{subjects.AlarmNumberLost: {3, 3}, subjects.AlarmStoreWentBack: {1, 3}},
		},
	}
}

// When all records are gone all workers lose their numbers in one heartbeat, and
// each takes another when the last IDs of the old one are past.
var allLoseTheirNumbers = tolerance{kinds: []kind{snowflake}, what: []string{"503", nobody}, end: 12 * time.Second}

var withoutStoreLong = tolerance{kinds: []kind{short}, what: []string{"503", "429"}, end: 12 * time.Second}

func theLeader(s *scene) *server {
	leader, _ := s.leader(namespace.SegmentBucket())
	return leader
}

func aFollower(s *scene) *server {
	_, followers := s.leader(namespace.SegmentBucket())
	return followers[0]
}

func killServer(which func(*scene) *server) func(*scene) func() {
	return func(s *scene) func() {
		v := which(s)
		s.say("SIGKILL of nats-server %s", v.name)
		v.kill()
		return func() { s.startServer(v) }
	}
}

func pauseServer(which func(*scene) *server) func(*scene) func() {
	return func(s *scene) func() {
		v := which(s)
		s.say("SIGSTOP of nats-server %s", v.name)
		s.must(v.signal(syscall.SIGSTOP))
		return func() { s.must(v.signal(syscall.SIGCONT)) }
	}
}

func killServers(s *scene) func() {
	s.say("SIGKILL of all nats-servers")
	for _, v := range s.servers {
		v.kill()
	}
	return func() {
		for _, v := range s.servers {
			s.startServer(v)
		}
	}
}

func pauseServers(s *scene) func() {
	s.say("SIGSTOP of all nats-servers")
	for _, v := range s.servers {
		s.must(v.signal(syscall.SIGSTOP))
	}
	return func() {
		for _, v := range s.servers {
			s.must(v.signal(syscall.SIGCONT))
		}
	}
}

func lameDucks(s *scene) func() { return s.roll(syscall.SIGUSR2) }

func rollServers(s *scene) func() { return s.roll(syscall.SIGTERM) }

// roll stops each server with a signal and starts it again, as an upgrade does.
func (s *scene) roll(sig syscall.Signal) func() {
	for _, v := range s.servers {
		s.say("%v for nats-server %s", sig, v.name)
		s.must(v.stop(sig, startWithin))
		s.startServer(v)
		s.awaitPeers()
	}
	return nil
}

// awaitPeers waits until every server of the cluster is up to date, as one does
// before stopping the next.
func (s *scene) awaitPeers() {
	for _, bucket := range []string{namespace.SegmentBucket(), namespace.HistoryBucket(), namespace.WorkerBucket()} {
		s.until(startWithin, bucket+" has three replicas that are up to date", func() bool { return s.current(bucket) })
	}
}

func wipeServers(s *scene) func() {
	s.say("all nats-servers are killed, and their stores deleted")
	for _, v := range s.servers {
		v.kill()
	}
	for _, v := range s.servers {
		s.must(os.RemoveAll(v.data))
		s.must(os.MkdirAll(v.data, 0o700))
	}
	return func() {
		for _, v := range s.servers {
			s.startServer(v)
		}
	}
}

func wipe(s *scene) func() {
	heal := wipeServers(s)
	return func() {
		heal()
		// Above all that was loaded: what was issued, and what workers still hold.
		s.makeTag(longTag, s.longStep(), 1_000_000_000)
		s.makeTag(shortTag, shortStep, 1_000_000_000)
		s.say("the tags are made again")
	}
}
