//go:build linux

package main

import (
	"fmt"
	"github.com/natsid/natsid/internal/wire"
	"slices"
	"time"
)

// A fault is a failure that is caused on a cluster under load, and its permitted cost. No fault may make an ID
// repeat.
type fault struct {
	name    string
	summary string // the event, for the report
	fleet   fleet
	// inject causes the fault; the function that it returns ends it, nil if the fault ends by itself. lasts is the
	// time between the two.
	inject func(*trial) (heal func())
	lasts  time.Duration

	// losses are the only requests that may get no IDs.
	losses []loss
	// single means that the fault strikes one worker of several, or one server of three, at a time: callers through
	// package client do not notice it.
	single bool
	// gap is the longest time for which callers may get no IDs of a kind that no loss names; 1 s if 0. shortGap is
	// the same for the short and the strict tag where a loss names them; 0 means no bound.
	gap, shortGap time.Duration
	// recovery is the time from the fault's end within which every worker serves fully and no request fails; 5 s if
	// 0.
	recovery time.Duration
	// watch is how long the cluster is watched after its recovery; 4 s if 0.
	watch time.Duration
	// unnoticed means that no caller may wait longer than a second, except for a loss.
	unnoticed bool
	// settle is how long after the fault's start IDs issued before may repeat; 0 if none may.
	settle time.Duration
	// alarms are the alarms that workers raise; no others are permitted.
	alarms alarms

	area    area // of a fault that can be mixed with others; "" for others
	brief   bool // part of the short run
	random  bool // a sequence of other faults; it has no inject
	upgrade bool // it needs -old
	alone   bool // runs without other trials at the same time
}

// fleet is the processes of a fault.
type fleet struct {
	servers  int // nats-servers; 0: the only worker has one inside
	workers  int
	mysql    bool          // segments in MariaDB, guarded by marks in JetStream
	oneLink  bool          // only the first worker reaches MariaDB through its proxy
	together bool          // all workers connect to the first server, and learn of the others there
	proxied  bool          // the first worker reaches NATS, and all reach MariaDB, through proxies
	old      bool          // workers and stages begin with the version of -old
	disks    bool          // the last server and the first worker have small disks of their own
	marksOn  string        // the server that leads the marks' stream; "": any
	leaf     leafNode      // one more server, with one more worker if it is apart
	flags    []string      // of all workers
	quota    time.Duration // CPU time of each worker in overload.Period; 0: no limit

	daily  bool            // the tags of the load are daily: see days
	clocks []time.Duration // how far the workers' clocks are ahead at first; none: not at all
}

// leafNode is the kind of a fleet's leaf node, which has a JetStream of its own in a domain of its own, and callers.
type leafNode int

const (
	noLeaf leafNode = iota
	joined          // its link to the first server is up
	apart           // its link is down until the fault begins; a worker serves there
)

// alarms bounds the number of alarms of each kind: minimum and maximum.
type alarms map[wire.Alarm]times

type times [2]int

func (t times) String() string {
	if t[0] == t[1] {
		return fmt.Sprint(t[0])
	}
	return fmt.Sprintf("%d to %d", t[0], t[1])
}

// An area is the target of a fault. Two faults of one area are not mixed.
type area string

const (
	onWorker   area = "worker"
	onClock    area = "clock"
	onNATS     area = "nats"
	onNetwork  area = "network"
	onDatabase area = "database"
)

// A loss allows requests to get no IDs: those of some kinds, with some outcomes, sent between a caller's patience (2
// s) before the fault began and some time after.
type loss struct {
	kinds      []kind
	outcomes   []string      // codes, timeout, noResponders, disconnected
	afterStart time.Duration // up to this after the fault's start; 0: up to its end
	afterEnd   time.Duration // or up to this after its end
	cause      cause         // if it has a name, only during its effect instead
	most       int           // maximum number; 0 means any
}

// during returns the spans in which the loss may occur in a trial, for requests of a kind.
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

// covers reports whether the loss covers a request or call whose caller waits for waits.
func (l loss) covers(t *trial, f failure, waits time.Duration) bool {
	return l.names(f.kind) && slices.ContainsFunc(l.during(t, f.kind), func(s span) bool {
		return s.from-waits <= f.at && f.at <= s.till
	})
}

// names reports whether the loss is about a kind. The strict tag needs its store for each request, like the short
// one.
func (l loss) names(k kind) bool {
	return slices.Contains(l.kinds, k) || k == strict && slices.Contains(l.kinds, short)
}

// lasting reports whether the loss allows callers to be refused for as long as the fault lasts.
func (l loss) lasting() bool { return l.most == 0 && l.afterStart == 0 }

var all = []kind{snowflake, long, short, strict}

// Losses that several faults have.
var (
	// Requests that a process had taken are lost with it: core NATS delivers at most once. At 400 requests per second
	// that is a handful.
	lostInFlight = loss{
		kinds: all, outcomes: []string{timeout, disconnected}, afterStart: 500 * time.Millisecond, most: 20,
	}
	// The same for a process that is killed later in the fault.
	lostInFlightLater = loss{
		kinds: all, outcomes: []string{timeout, disconnected}, afterEnd: 500 * time.Millisecond, most: 20,
	}
	// NATS routes to a worker that hangs until its server misses the second answer to a ping: 6 s with ping_interval
	// 2s and ping_max 2.
	untilDetected = loss{kinds: all, outcomes: []string{timeout}, afterStart: 8 * time.Second}
	// A worker that resumes receives requests before it knows that its window has
	// ended.
	afterResume = loss{kinds: []kind{snowflake}, outcomes: []string{"503"}, afterEnd: time.Second, most: 60}
	// The short tag needs its store every second or two.
	storeAway = loss{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterEnd: 2 * time.Second}
	// A request for the strict tag needs a leader of the marks, and its acknowledgement.
	betweenLeaders = loss{kinds: []kind{strict}, outcomes: []string{"503", "429"}, afterEnd: 2 * time.Second}
	// A worker that lost its store relays soon. Until then callers may be refused, or wait.
	untilRelayed = loss{
		kinds: []kind{short}, outcomes: []string{"503", slowly, noResponders}, afterStart: 5 * time.Second,
	}
	// A worker whose clock is wrong leaves within 100 ms; requests that it had received are refused.
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
	return slices.Concat(workerFaults(), clockFaults(), numberFaults(), holderFaults(), natsFaults(),
		networkFaults(), diskFaults(), databaseFaults(), marksFaults(), registryFaults(), stampFaults(),
		overloadFaults(), randomFaults(), upgradeFaults())
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

// gapLimitOf returns how long callers of a kind may get no IDs. There is no bound if they may be refused for as long
// as the fault lasts.
func (f fault) gapLimitOf(k kind) (most time.Duration, bounded bool) {
	if (k == short || k == strict) && f.shortGap > 0 {
		return f.shortGap, true
	}
	return f.gapLimit(), !slices.ContainsFunc(f.losses, func(l loss) bool {
		return l.lasting() && l.names(k)
	})
}

// mayFail reports whether a call through package client may get no IDs: never where one worker or server is struck,
// unless the store of its tag may be out of reach for longer than a caller waits; otherwise where a bare request may.
func (f fault) mayFail(t *trial, call failure) bool {
	if f.single {
		return (call.kind == short || call.kind == strict) && f.shortGap > patience
	}
	return slices.ContainsFunc(f.losses, func(l loss) bool { return l.covers(t, call, patience) })
}
