package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A stock holds IDs for future calls, by the law Prefetch of docs/client-laws.md. Each ID is given once: a call removes
// it under the lock, and no two replies of natsid hold the same ID.
type stock struct {
	target *target
	header nats.Header
	n      int // IDs of each request
	maxAge time.Duration

	mu      sync.Mutex
	held    []*block      // in the order of their requests
	looked  time.Duration // what [clock] showed when the wall clock was last read
	asking  chan struct{} // closed when the request under way has ended; nil if there is none
	waiting int           // calls that wait for that request
	err     error         // error of the last request
}

// A block has those IDs of one request that no call has got yet.
//
// The IDs are too old when maxAge has passed since before the request, by the monotonic clock or by the wall clock:
// the monotonic clock stands still while a machine is suspended. If the wall clock is set ahead, the IDs are
// discarded; if it is set back, the monotonic clock counts.
type block struct {
	runs  subjects.Runs
	size  int
	until time.Duration // when the IDs are too old, by [clock]
	by    time.Time     // when the IDs are too old, by the wall clock
}

// wallEvery is how long one reading of the wall clock serves all calls: reading it costs more than the rest of a call.
// Each call reads the monotonic clock itself, which notices pauses of the process, but no suspension of the machine. So
// in the first millisecond after a suspension a call may get an ID that it could have got just before.
const wallEvery = time.Millisecond

var began = time.Now()

// clock returns the time since the process began, by the monotonic clock.
func clock() time.Duration { return time.Since(began) }

func newStock(t *target, n int, maxAge time.Duration) *stock {
	header := nats.Header{subjects.HeaderPrefetch: {maxAge.String()}}
	return &stock{target: t, header: header, n: n, maxAge: maxAge}
}

// next returns a held ID. If none is held, it returns 0 and a channel that is closed when the request under way has
// ended: then the caller calls wait, which returns an ID of that request.
func (k *stock) next() (id subjects.ID, asking chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds(1) {
		return k.take(1).First, nil
	}
	k.ask()
	k.waiting++
	return 0, k.asking
}

// nextN returns n held IDs. If fewer are held, it returns nil: they would grow too old while the rest is requested.
func (k *stock) nextN(n int) (runs subjects.Runs) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.holds(n) {
		return nil
	}
	for n > 0 {
		run := k.take(n)
		runs, n = append(runs, run), n-int(run.Len())
	}
	return runs
}

// holds reports whether n IDs are held that are not too old; if fewer, the caller takes none. It requests the next
// range if at most half of k.n IDs would be left, or if the newest range has less than a quarter of maxAge to go.
// After a failed request it requests none: only a call that waits does. k.mu is held.
func (k *stock) holds(n int) bool {
	held, left := k.fresh()
	rest := held
	if n <= held {
		rest -= n
	}
	if k.err == nil && (rest <= k.n/2 || left < k.maxAge/4) {
		k.ask()
	}
	return held >= n
}

// fresh discards IDs that are too old, and returns how many are held, and for how long the newest may be used. k.mu is
// held.
func (k *stock) fresh() (held int, left time.Duration) {
	now := clock()
	if now-k.looked >= wallEvery {
		k.looked = now
		wall := k.target.client.wall()
		for _, b := range k.held {
			b.until = min(b.until, now+b.by.Sub(wall))
		}
	}
	for i := 0; i < len(k.held); {
		b := k.held[i]
		if b.until <= now {
			k.held = slices.Delete(k.held, i, i+1)
			continue
		}
		held, left = held+b.size, b.until-now
		i++
	}
	return held, left
}

// take removes held IDs, a run of at most the number most, and returns them. At least one must be held. k.mu is held.
func (k *stock) take(most int) subjects.Run {
	b := k.held[0]
	run := b.runs[0]
	if n := int64(most); n < run.Len() {
		run.Last = run.First + subjects.ID(n) - 1
		b.runs[0].First = run.Last + 1
	} else {
		b.runs = b.runs[1:]
	}
	if b.size -= int(run.Len()); b.size == 0 {
		k.held = slices.Delete(k.held, 0, 1)
	}
	return run
}

// wait waits for the request under way, and for further requests while other calls take all IDs.
func (k *stock) wait(ctx context.Context, asking chan struct{}) (subjects.ID, error) {
	ctx, cancel := k.target.client.bounded(ctx)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.waiting-- }()
	for {
		k.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if ctx.Err() != nil {
			return 0, k.target.gaveUp(ctx.Err())
		}
		if k.err != nil {
			return 0, k.err
		}
		if k.holds(1) {
			return k.take(1).First, nil
		}
		k.ask()
		asking = k.asking
	}
}

// ask sends a request unless one is under way. k.mu is held.
func (k *stock) ask() {
	if k.asking != nil {
		return
	}
	k.asking = make(chan struct{})
	b := &block{size: k.n, until: clock() + k.maxAge, by: k.target.client.wall().Add(k.maxAge)}
	done := func(a answer) {
		b.runs = a.runs
		k.receive(b, a.err)
	}
	f := &flight{target: k.target, n: k.n, header: k.header, wanted: k.isWanted, done: done}
	go f.launch() // it may wait for the connection
}

// isWanted reports whether the answer to a request is still useful: a call waits, or the held IDs will run out.
func (k *stock) isWanted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	held, _ := k.fresh()
	return k.waiting > 0 || held > 0
}

func (k *stock) receive(b *block, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.held = append(k.held, b)
	}
	if errors.Is(err, errUnwanted) {
		k.err = nil // no call waited
	}
	close(k.asking)
	k.asking = nil
}
