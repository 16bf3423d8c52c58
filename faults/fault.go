//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/subjects"
)

// A fault is a failure that is caused on a cluster under load, and what it may
// cost. Whatever it is, no ID repeats.
type fault struct {
	name    string
	summary string // what happens, for the report
	fleet   fleet
	// inject causes the fault; the function that it returns ends it, nil if
	// the fault ends by itself. lasts is the time between the two.
	inject func(*trial) (heal func())
	lasts  time.Duration

	// losses are the only requests that may stay without IDs.
	losses []loss
	// single says that the fault strikes one worker of several, or one server of
	// three, at a time: callers through package client do not see it.
	single bool
	// gap is the longest that callers may go without IDs of a kind that no loss
	// names; 1 s if 0. shortGap is that of the short and the strict tag where a loss
	// names them; 0: no bound.
	gap, shortGap time.Duration
	// recovery is the time within which every worker serves all it can and no
	// request fails, from the fault's end; 5 s if 0.
	recovery time.Duration
	// watch is how long the cluster is watched after its recovery; 4 s if 0.
	watch time.Duration
	// unnoticed says that no caller may wait longer than a second, but for a loss.
	unnoticed bool
	// settle is how long after the fault's start IDs may repeat that were issued by
	// then; 0 if none may.
	settle time.Duration
	// alarms are those that workers raise; no others may be.
	alarms alarms

	area   area // of a fault that can be mixed with others; "" for the rest
	brief  bool // part of the short run
	random bool // a sequence of other faults; it has no inject
	once   bool // it is run with one --on-clock-step only
	alone  bool // once, and no other trial runs meanwhile
}

// fleet is the processes that a fault needs.
type fleet struct {
	servers  int // nats-servers; 0: the only worker has one inside
	workers  int
	mysql    bool          // segments in MariaDB, guarded by marks in JetStream
	oneLink  bool          // only the first worker reaches MariaDB through its proxy
	together bool          // all workers join the first server, and learn of the others there
	proxied  bool          // the first worker reaches NATS, and all reach MariaDB, through proxies
	disks    bool          // the last server and the first worker have small disks of their own
	marksOn  string        // the server that leads the marks' stream; "": any
	leaf     leafNode      // one more server, with one more worker if it is apart
	flags    []string      // of all workers
	quota    time.Duration // CPU time of each worker in overload.Period; 0: no limit
}

// leafNode is whether a fleet has a leaf node, with a JetStream of its own in a
// domain of its own, and callers.
type leafNode int

const (
	noLeaf leafNode = iota
	joined          // its link to the first server is up
	apart           // its link is down until the fault begins; a worker serves there
)

// alarms bounds how many of a kind are raised: at least and at most.
type alarms map[subjects.Alarm]times

type times [2]int

func (t times) String() string {
	if t[0] == t[1] {
		return fmt.Sprint(t[0])
	}
	return fmt.Sprintf("%d to %d", t[0], t[1])
}

// An area is what a fault strikes. Two of one area are not mixed.
type area string

const (
	onWorker   area = "worker"
	onClock    area = "clock"
	onNATS     area = "nats"
	onNetwork  area = "network"
	onDatabase area = "database"
)

// A loss allows requests to stay without IDs: those of some kinds, with some
// outcomes, sent between a caller's patience (2 s) before the fault began and
// some time after.
type loss struct {
	kinds      []kind
	outcomes   []string      // codes, timeout, noResponders, disconnected
	afterStart time.Duration // up to this after the fault's start; 0: up to its end
	afterEnd   time.Duration // or up to this after its end
	cause      cause         // if it has a name, only while that lasts instead
	most       int           // how many; 0: any number
}

// during returns when the loss may occur in a trial, to requests of a kind.
func (l loss) during(t *trial, k kind) []span {
	switch {
	case l.cause.name != "":
		return l.cause.lasted(t, k)
	case l.afterStart > 0:
		return []span{{t.from, t.from + l.afterStart}}
	}
	return []span{{t.from, t.till + l.afterEnd}}
}

// allows reports whether the loss names a failure of a trial.
func (l loss) allows(t *trial, f failure) bool {
	return slices.Contains(l.outcomes, f.outcome) && l.covers(t, f, callerWaits)
}

// covers reports whether the loss is about what was requested by somebody who waits so long.
func (l loss) covers(t *trial, f failure, waits time.Duration) bool {
	return l.names(f.kind) && slices.ContainsFunc(l.during(t, f.kind), func(s span) bool {
		return s.from-waits <= f.at && f.at <= s.till
	})
}

// names reports whether the loss is about a kind. The strict tag needs its store as the
// short one does, for each request.
func (l loss) names(k kind) bool {
	return slices.Contains(l.kinds, k) || k == strict && slices.Contains(l.kinds, short)
}

// lasting reports whether the loss allows callers to be refused for as long as
// the fault lasts.
func (l loss) lasting() bool { return l.most == 0 && l.afterStart == 0 }

var all = []kind{snowflake, long, short, strict}

// Losses that several faults have.
var (
	// Requests that a process had taken are lost with it: core NATS delivers at
	// most once. At 400 requests per second that is a handful.
	lostInFlight = loss{
		kinds: all, outcomes: []string{timeout, disconnected}, afterStart: 500 * time.Millisecond, most: 20,
	}
	// The same of a process that is killed only later in the fault.
	lostInFlightLater = loss{
		kinds: all, outcomes: []string{timeout, disconnected}, afterEnd: 500 * time.Millisecond, most: 20,
	}
	// NATS routes to a worker that hangs until its server misses the second
	// answer to a ping: 6 s with ping_interval 2s and ping_max 2.
	untilDetected = loss{kinds: all, outcomes: []string{timeout}, afterStart: 8 * time.Second}
	// A worker that resumes receives requests before it knows that its window has
	// ended.
	afterResume = loss{kinds: []kind{snowflake}, outcomes: []string{"503"}, afterEnd: time.Second, most: 60}
	// The short tag cannot do without its store for more than a second or two.
	storeAway = loss{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterEnd: 2 * time.Second}
	// A request for the strict tag needs a leader of the marks, and its acknowledgement.
	betweenLeaders = loss{kinds: []kind{strict}, outcomes: []string{"503", "429"}, afterEnd: 2 * time.Second}
	// A worker that lost its store leaves soon. Meanwhile callers may be refused, or wait.
	untilOneLeft = loss{
		kinds: []kind{short}, outcomes: []string{"503", slowly, noResponders}, afterStart: 5 * time.Second,
	}
	// A worker whose clock is wrong leaves within 100 ms; what it had received by
	// then is refused.
	untilItLeft = loss{kinds: []kind{snowflake}, outcomes: []string{"503"}, afterStart: time.Second, most: 60}
)

var (
	threeWorkers = fleet{servers: 3, workers: 3}
	proxied      = fleet{servers: 3, workers: 3, proxied: true}
	oneOnMySQL   = fleet{servers: 3, workers: 3, mysql: true, proxied: true, oneLink: true}
	onMySQL      = fleet{servers: 3, workers: 3, mysql: true, proxied: true}
	// loadingOnMySQL loads the short tag to the end of the trial: steps do not grow.
	loadingOnMySQL = fleet{servers: 3, workers: 3, mysql: true, proxied: true, flags: pollOften}
)

// catalogue returns all faults, in the order of the report.
func catalogue() []fault {
	return slices.Concat(workerFaults(), clockFaults(), natsFaults(), networkFaults(), diskFaults(), databaseFaults(),
		marksFaults(), registryFaults(), stampFaults(), overloadFaults(), randomFaults())
}

func (f fault) recoveryLimit() time.Duration {
	if f.recovery == 0 {
		return 5 * time.Second
	}
	return f.recovery
}

func (f fault) watchTime() time.Duration {
	if f.watch == 0 {
		return 4 * time.Second
	}
	return f.watch
}

func (f fault) gapLimit() time.Duration {
	if f.gap == 0 {
		return time.Second
	}
	return f.gap
}

// gapLimitOf returns how long callers of a kind may go without IDs. There is no
// such bound if they may be refused for as long as the fault lasts.
func (f fault) gapLimitOf(k kind) (most time.Duration, bounded bool) {
	if (k == short || k == strict) && f.shortGap > 0 {
		return f.shortGap, true
	}
	return f.gapLimit(), !slices.ContainsFunc(f.losses, func(l loss) bool {
		return l.lasting() && l.names(k)
	})
}

// mayFail reports whether a call through package client may stay without IDs: never
// where one worker or server is struck, unless the store of its tag may be away for
// longer than a caller has patience; else where a bare request may.
func (f fault) mayFail(t *trial, call failure) bool {
	if f.single {
		return (call.kind == short || call.kind == strict) && f.shortGap > patience
	}
	return slices.ContainsFunc(f.losses, func(l loss) bool { return l.covers(t, call, patience) })
}
