//go:build linux

package main

import (
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/subjects"
)

// networkFaults strike what is between the first worker and NATS.
func networkFaults() []fault {
	return []fault{
		{
			name: "acks-dropped", does: "for 10 s no acknowledgement of a write reaches one worker, though the writes land",
			cast: proxied, hold: 10 * time.Second, inject: dropAcks, may: []tolerance{withoutStore}, area: onNetwork, brief: true,
		},
		{
			name: "network-slow", does: "for 10 s all that goes between one worker and NATS takes 150 ms more each way",
			cast: proxied, hold: 10 * time.Second, inject: slow, may: []tolerance{withoutStore}, area: onNetwork,
		},
		{
			name: "network-cut", does: "one worker's connections are cut, and refused for 5 s",
			cast: proxied, hold: 5 * time.Second, inject: cut, may: []tolerance{takenAlong}, area: onNetwork,
		},
		{
			name: "network-partition", does: "for 15 s nothing passes between one worker and NATS, and nobody hangs up",
			cast: proxied, hold: 15 * time.Second, inject: partition, may: []tolerance{untilMissed, afterPause}, area: onNetwork,
		},
		{
			name: "network-partition-40s", does: "the same for 40 s, longer than the lease",
			cast: proxied, hold: 40 * time.Second, inject: partition, may: []tolerance{untilMissed, afterPause},
		},
	}
}

func dropAcks(s *scene) func() {
	s.toProxies(func(p *natsproxy.Proxy) { p.DropAcks(natsproxy.All) })
	return func() {
		var dropped int64
		for _, p := range s.proxies {
			p.DropAcks(nil)
			dropped += p.Dropped()
		}
		if s.say("%d acknowledgements were dropped", dropped); dropped == 0 {
			s.expected("no acknowledgement was dropped")
		}
	}
}

func (s *scene) toProxies(f func(*natsproxy.Proxy)) {
	for _, p := range s.proxies {
		f(p)
	}
}

func slow(s *scene) func() {
	s.toProxies(func(p *natsproxy.Proxy) { p.Delay(150 * time.Millisecond) })
	return func() { s.toProxies(func(p *natsproxy.Proxy) { p.Delay(0) }) }
}

func cut(s *scene) func() {
	s.toProxies(func(p *natsproxy.Proxy) { p.Refuse(true); p.Cut() })
	return func() { s.toProxies(func(p *natsproxy.Proxy) { p.Refuse(false) }) }
}

func partition(s *scene) func() {
	s.toProxies(func(p *natsproxy.Proxy) { p.Stall(true, "") })
	return func() { s.toProxies(func(p *natsproxy.Proxy) { p.Stall(false, "") }) }
}

func diskFaults() []fault {
	disks := cast{servers: 3, workers: 3, disks: true}
	return []fault{
		{
			name: "disk-full-worker", does: "the disk of one worker's state file is full for 10 s",
			cast: disks, hold: 10 * time.Second, inject: fillWorker, may: []tolerance{{kinds: []kind{snowflake}, what: []string{"503"}, begin: 5 * time.Second, most: 60}},
			alarms: alarms{subjects.AlarmStateFile: {1, 1}},
		},
		{
			name: "disk-full-nats", does: "the disk of one nats-server's JetStream is full for 10 s; then it is freed, and the server started anew",
			cast: disks, hold: 10 * time.Second, inject: fillServer, may: []tolerance{withoutStore, routedAlong, {kinds: all, what: []string{silent, cutOff}, end: time.Second, most: 30}},
		},
	}
}

func fillWorker(s *scene) func() {
	free, err := fillDisk(s.workers[0].data)
	s.must(err)
	return func() { s.must(free()) }
}

func fillServer(s *scene) func() {
	v := s.servers[len(s.servers)-1]
	free, err := fillDisk(v.data)
	s.must(err)
	return func() {
		s.must(free())
		v.kill()
		s.startServer(v)
	}
}

// databaseFaults strike MariaDB, or what is between it and the workers.
func databaseFaults() []fault {
	return []fault{
		{
			name: "mysql-kill", does: "SIGKILL of MariaDB, started again after 5 s",
			cast: onMySQL, hold: 5 * time.Second, inject: killDatabase, may: []tolerance{withoutStore}, area: onDatabase,
		},
		{
			name: "mysql-pause", does: "SIGSTOP of MariaDB for 5 s",
			cast: onMySQL, hold: 5 * time.Second, inject: pauseDatabase, may: []tolerance{withoutStore}, area: onDatabase, brief: true,
		},
		{
			name: "mysql-restored", does: "MariaDB is stopped and comes back with a copy of its data from 5 s ago: it lost commits",
			cast: onMySQL, inject: restoreDatabase, may: []tolerance{withoutStore},
			alarms: alarms{subjects.AlarmStoreWentBack: {1, 6}},
		},
		{
			name: "mysql-read-only", does: "MariaDB refuses writes for 5 s, as a replica does",
			cast: onMySQL, hold: 5 * time.Second, inject: readOnly, may: []tolerance{withoutStore}, area: onDatabase,
		},
		{
			name: "mysql-refused", does: "MariaDB's connections are cut, and refused for 5 s",
			cast: onMySQL, hold: 5 * time.Second, inject: refuseDatabase, may: []tolerance{withoutStore}, area: onDatabase,
		},
		{
			name: "mysql-jetstream-wiped", does: "all nats-servers lose their stores under the live workers; MariaDB remembers",
			cast: onMySQL, hold: time.Second, inject: wipeServers, gap: 15 * time.Second, back: 25 * time.Second, calm: 15 * time.Second,
			may:    []tolerance{withoutNATS, withoutStoreLong, allLoseTheirNumbers},
			alarms: alarms{subjects.AlarmNumberLost: {3, 3}, subjects.AlarmStoreWentBack: {1, 3}},
		},
	}
}

func killDatabase(s *scene) func() {
	s.db.Kill()
	return s.db.Run
}

func pauseDatabase(s *scene) func() {
	s.db.Pause()
	return s.db.Resume
}

func restoreDatabase(s *scene) func() {
	copied := s.db.Snapshot()
	s.pass(5 * time.Second)
	s.say("MariaDB comes back with what it had 5 s ago")
	s.db.Kill()
	s.db.Restore(copied)
	s.db.Run()
	return nil
}

func readOnly(s *scene) func() {
	s.db.SetReadOnly(true)
	return func() { s.db.SetReadOnly(false) }
}

func refuseDatabase(s *scene) func() {
	s.link.Refuse(true)
	s.link.Drop()
	return func() { s.link.Refuse(false) }
}
