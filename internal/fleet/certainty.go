package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A certainty is the time until which this worker certainly knew which tags are strict. It is extended as long as the
// connection on which they were read is up: the command that makes a tag strict waits for all workers that are
// connected.
type certainty struct {
	until      time.Time // zero if they were never read
	reconnects uint64    // of the connection, when the tags were read
	doubts     int       // number of doubts at that time
	broken     bool      // it is no longer extended
	asked      uint64    // reconnects when a read of all settings was requested, if broken
}

// ordering puts the strict tags in force, and keeps track of how certain they are. It is safe for concurrent use.
type ordering struct {
	cfg     *Config
	isStale *atomic.Bool  // set when settings must be read again
	wake    chan struct{} // has room for one value, which asks for that read now

	// mu guards calls of SetStrict and Doubt, doubts, which counts calls of Doubt, and certain: settings that were read
	// before a doubt do not end it.
	mu      sync.Mutex
	doubts  int
	certain certainty

	honoured atomic.Uint64 // the last revision of the bucket whose strict tags are in force here
}

// Honoured returns the revision of the bucket up to which this worker has read the settings: the strict tags of that
// revision are in force here. 0 means none.
func (o *ordering) Honoured() uint64 { return o.honoured.Load() }

// begin returns the certainty that a read which begins now will give.
func (o *ordering) begin() certainty {
	o.mu.Lock()
	defer o.mu.Unlock()
	return certainty{until: time.Now(), reconnects: o.cfg.Conn.Stats().Reconnects, doubts: o.doubts}
}

// honour puts the strict tags that were read in force, unless another doubt began since the read began.
func (o *ordering) honour(read certainty, known *entries) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if read.doubts != o.doubts {
		o.isStale.Store(true)
		return
	}
	seq := known.now().seq
	o.cfg.SetStrict(known.strict())
	o.certain = read
	o.honoured.Store(seq)
}

// inDoubt reports whether tags wait until the settings have been read.
func (o *ordering) inDoubt() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.certain.doubts != o.doubts
}

const (
	// cutOff is how long a worker may stand still while a command that makes a tag strict still finds it: its
	// heartbeat lasts longer.
	cutOff = 5 * time.Second
	// certainFor is how long a worker that may have missed a change serves tags from memory.
	certainFor = subjects.HeldLoose
)

// watch keeps track of the certainty until ctx ends.
func (o *ordering) watch(ctx context.Context) {
	conn := o.cfg.Conn
	changes := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CONNECTED)
	defer conn.RemoveStatusListener(changes)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-changes:
		case <-ctx.Done():
			return
		}
		o.lookAt(time.Now(), conn.IsConnected(), conn.Stats().Reconnects)
	}
}

// lookAt extends the certainty while the connection is up. If the connection was lost, or the process stood still, it
// requests a read of all settings; until then loose tags are served from memory, for certainFor at most.
//
// Law: a worker serves a tag from memory as a loose one only if less than certainFor has passed since it certainly
// knew that the tag is loose. A change can miss the worker only after that moment, and takes effect
// [subjects.StrictAfter] later: by then every caller that the worker served has put its IDs to use.
func (o *ordering) lookAt(now time.Time, connected bool, reconnects uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.certain.until.IsZero() {
		return
	}
	age := since(o.certain.until, now)
	if connected && reconnects == o.certain.reconnects && age < cutOff && !o.certain.broken {
		o.certain.until = now
		return
	}
	if age >= certainFor && o.certain.doubts == o.doubts {
		o.doubts++
		o.cfg.Doubt()
		o.cfg.Log.Warn("whether tags have become strict could not be read for so long that requests for tags wait "+
			"until it can be", "for", age.Round(time.Second).String())
	}
	if o.certain.broken && o.certain.asked == reconnects {
		return
	}
	o.certain.broken, o.certain.asked = true, reconnects
	o.isStale.Store(true)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// since returns the larger of the times passed by either clock: the monotonic one stands still while a machine is
// suspended.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
