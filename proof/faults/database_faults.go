//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"time"
)

// databaseFaults strike MariaDB, or the link between it and the workers.
func databaseFaults() []fault {
	return []fault{
		{
			name: "mysql-kill", summary: "SIGKILL of MariaDB, restarted after 5 s",
			fleet: onMySQL, inject: killDatabase, lasts: 5 * time.Second,
			losses: []loss{storeAway}, area: onDatabase,
		},
		{
			name: "mysql-pause", summary: "SIGSTOP of MariaDB for 5 s",
			fleet: onMySQL, inject: pauseDatabase, lasts: 5 * time.Second,
			losses: []loss{storeAway}, area: onDatabase, brief: true,
		},
		{
			name:    "mysql-restored",
			summary: "MariaDB is stopped and comes back with a copy of its data from 5 s ago: it lost commits",
			fleet:   loadingOnMySQL, inject: restoreDatabase,
			losses: []loss{storeAway},
			// Each worker reports each tag that went back once a minute.
			alarms: alarms{wire.AlarmTableWentBack: {1, loadingOnMySQL.workers * len(tags)}},
		},
		{
			name: "mysql-read-only", summary: "MariaDB refuses writes for 5 s, as a replica does",
			fleet: onMySQL, inject: readOnly, lasts: 5 * time.Second,
			losses: []loss{storeAway}, area: onDatabase,
		},
		{
			name: "mysql-refused", summary: "MariaDB's connections are cut, and refused for 5 s",
			fleet: onMySQL, inject: refuseDatabase, lasts: 5 * time.Second,
			losses: []loss{storeAway}, area: onDatabase,
		},
		{
			name:    "store-away-one",
			summary: "one worker's connections to MariaDB are cut, and refused for 15 s: it relays, and stays ready",
			fleet:   oneOnMySQL, inject: refuseOne, lasts: 15 * time.Second,
			losses: []loss{untilRelayed}, unnoticed: true, single: true,
		},
		{
			name: "mysql-jetstream-wiped",
			summary: "all nats-servers lose their stores under the live workers; MariaDB keeps its data, " +
				"and an operator resumes with the bump 0",
			fleet: onMySQL, inject: wipe("--bump", "0"),
			losses: []loss{natsAway, untilResumed, whileAway, untilRenumbered},
			gap:    15 * time.Second, watch: 8 * time.Second,
			alarms: alarms{
				wire.AlarmNumberLost: {3, 3}, wire.AlarmMarksLost: {1, 3}, wire.AlarmBucketUnfit: {0, 3},
			},
		},
	}
}

func killDatabase(t *trial) func() {
	t.db.Kill()
	return t.db.Run
}

func pauseDatabase(t *trial) func() {
	t.db.Pause()
	return t.db.Resume
}

func restoreDatabase(t *trial) func() {
	copied := t.db.Snapshot()
	t.sleep(5 * time.Second)
	t.logf("MariaDB comes back with its state of 5 s ago")
	t.db.Kill()
	t.db.Restore(copied)
	t.db.Run()
	return nil
}

func readOnly(t *trial) func() {
	t.db.SetReadOnly(true)
	return func() { t.db.SetReadOnly(false) }
}

// refuseOne is refuseDatabase in a fleet where only the first worker has the link.
func refuseOne(t *trial) func() {
	heal := refuseDatabase(t)
	return func() {
		w := t.workers[0]
		if t.logf("%s: %s", w.name, w.state()); !w.ready() {
			t.violation("%s is not ready, though another one answers for it", w.name)
		}
		heal()
	}
}

func refuseDatabase(t *trial) func() {
	t.link.Refuse(true)
	t.link.Drop()
	return func() { t.link.Refuse(false) }
}
