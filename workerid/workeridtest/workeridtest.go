// Package workeridtest has the conformance tests of [workerid.Registry] and a
// registry in memory whose calls can fail; it is internal to natsid and may change.
package workeridtest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/workerid"
)

// Run runs the conformance suite. Each subtest calls open once, for an empty registry. Each
// call of next returns a new handle on that registry, as another process would have it.
func Run(t *testing.T, open func(t *testing.T) (next func() workerid.Registry)) {
	for name, test := range map[string]func(*suite){
		"TheFirstDeploymentStands":      (*suite).deployment,
		"WriteIsCompareAndSet":          (*suite).compareAndSet,
		"OfConcurrentWritesOneLands":    (*suite).concurrentWrites,
		"HeartbeatsComeAndGo":           (*suite).heartbeats,
		"NoWorkerAnswersForAFreeNumber": (*suite).noWorker,
		"CallsReturnWhenTheContextEnds": (*suite).canceled,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next := open(t)
			test(&suite{T: t, Registry: next(), ctx: ctx, next: next})
		})
	}
}

type suite struct {
	*testing.T
	workerid.Registry
	ctx  context.Context
	next func() workerid.Registry
}

func (s *suite) deployment() {
	if d, err := s.Deployment(s.ctx); !errors.Is(err, workerid.ErrNoDeployment) {
		s.Errorf("in a new registry: %+v, %v, want ErrNoDeployment", d, err)
	}
	const n = 8
	var made atomic.Int32
	got := make([]workerid.Deployment, n)
	var wg sync.WaitGroup
	for i := range n {
		r := s.next()
		wg.Go(func() {
			mine := workerid.Deployment{ID: string(rune('a' + i)), Layout: "41+10+12", Epoch: 7, Unit: 1}
			if err := r.Found(s.ctx, mine); err == nil {
				made.Add(1)
			} else if !errors.Is(err, workerid.ErrConflict) {
				s.Errorf("Found: %v", err)
			}
			d, err := r.Deployment(s.ctx)
			if err != nil {
				s.Errorf("Deployment: %v", err)
			}
			got[i] = d
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		s.Errorf("%d deployments were made, want 1", made.Load())
	}
	for _, d := range got {
		if d != got[0] || d.Layout != "41+10+12" || d.Epoch != 7 || d.Unit != 1 {
			s.Errorf("deployments %+v and %+v: all must get the first one's", d, got[0])
		}
	}
	if records, err := s.Records(s.ctx); err != nil || len(records) != 0 {
		s.Errorf("Records = %v, %v: a deployment is no record", records, err)
	}
}

func (s *suite) compareAndSet() {
	if _, err := s.Record(s.ctx, 7); !errors.Is(err, workerid.ErrNoRecord) {
		s.Errorf("a number never used: %v, want ErrNoRecord", err)
	}
	r := workerid.Record{
		Instance: "a", Token: "t1", Reported: 1, Until: 2,
		Deployment: workerid.Deployment{ID: "a", Layout: "41+10+12", Epoch: 7, Unit: 1},
	}
	first, err := s.Write(s.ctx, 7, r)
	if err != nil || first == 0 {
		s.Fatalf("first write: revision %d, %v", first, err)
	}
	for _, stale := range []uint64{0, first - 1, first + 1} {
		bad := workerid.Record{Instance: "b", Token: "t2", Until: 9, Revision: stale}
		if _, err := s.next().Write(s.ctx, 7, bad); !errors.Is(err, workerid.ErrConflict) {
			s.Errorf("write at revision %d of %d: %v, want ErrConflict", stale, first, err)
		}
	}
	r.Token, r.Until, r.Revision = "t3", 5, first
	second, err := s.next().Write(s.ctx, 7, r)
	if err != nil || second <= first {
		s.Fatalf("second write: revision %d after %d, %v", second, first, err)
	}
	r.Revision = second
	if got, err := s.Record(s.ctx, 7); err != nil || got != r {
		s.Errorf("Record = %+v, %v, want %+v", got, err, r)
	}
	if all, err := s.Records(s.ctx); err != nil || len(all) != 1 || all[7] != r {
		s.Errorf("Records = %+v, %v, want %+v", all, err, r)
	}
}

func (s *suite) concurrentWrites() {
	base, err := s.Write(s.ctx, 3, workerid.Record{Token: "base"})
	if err != nil {
		s.Fatal(err)
	}
	for range 20 {
		var wg sync.WaitGroup
		var won atomic.Uint64
		for i := range 6 {
			r := s.next()
			wg.Go(func() {
				rev, err := r.Write(s.ctx, 3, workerid.Record{Token: string(rune('a' + i)), Revision: base})
				if err != nil && !errors.Is(err, workerid.ErrConflict) {
					s.Errorf("Write: %v", err)
				}
				if err == nil && !won.CompareAndSwap(0, rev) {
					s.Errorf("two writes at revision %d landed: %d and %d", base, won.Load(), rev)
				}
			})
		}
		wg.Wait()
		if base = won.Load(); base == 0 {
			s.Fatal("no write landed")
		}
	}
}

func (s *suite) heartbeats() {
	l := workerid.Heartbeat{Instance: "a", Time: 5, Since: 4}
	if err := s.Report(s.ctx, 9, l); err != nil {
		s.Error(err)
	}
	before, err := s.Time(s.ctx)
	if d := time.Since(time.UnixMilli(before)).Abs(); err != nil || d > 5*time.Second {
		s.Errorf("Time = %d, %v: %v from now", before, err, d)
	}
	l.Time = 8
	if err := s.Report(s.ctx, 9, l); err != nil {
		s.Error(err)
	}
	after, err := s.next().Time(s.ctx)
	if err != nil {
		s.Error(err)
	}
	all, err := s.next().Heartbeats(s.ctx)
	if at := all[9].At; at < before || at > after {
		s.Errorf("the heartbeat is dated %d, not between %d and %d", at, before, after)
	}
	l.At = all[9].At
	if err != nil || len(all) != 1 || all[9] != l {
		s.Errorf("Heartbeats = %+v, %v, want %+v", all, err, l)
	}
	if err := s.Leave(s.ctx, 9); err != nil {
		s.Error(err)
	}
	if all, err := s.next().Heartbeats(s.ctx); err != nil || len(all) != 0 {
		s.Errorf("after Leave: %+v, %v", all, err)
	}
}

func (s *suite) noWorker() {
	if who, err := s.Ask(s.ctx, 11); !errors.Is(err, workerid.ErrNoWorker) {
		s.Errorf("Ask = %+v, %v, want ErrNoWorker", who, err)
	}
}

func (s *suite) canceled() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.Write(ctx, 1, workerid.Record{Token: "t"}); err == nil {
		s.Error("a write under an ended context said it landed")
	}
	if _, err := s.Records(ctx); err == nil {
		s.Error("a read under an ended context succeeded")
	}
}

// A Memory is the state of a registry in memory, which the [Fake] handles of many processes share. The zero value is
// empty and ready. Heartbeats in it do not expire.
type Memory struct {
	mu         sync.Mutex
	deployment workerid.Deployment
	records    map[int]workerid.Record
	heartbeats map[int]workerid.Heartbeat
	revision   uint64
	answers    map[int]workerid.Who
	bystander  bool
	slip       time.Duration
}

// Set sets the registry's clock to true time plus slip.
func (m *Memory) Set(slip time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slip = slip
}

// time returns the registry's time, Unix ms. m.mu is held.
func (m *Memory) time() int64 { return time.Now().Add(m.slip).UnixMilli() }

// Answer makes a worker answer for number w from now on.
func (m *Memory) Answer(w int, who workerid.Who) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers == nil {
		m.answers = make(map[int]workerid.Who)
	}
	m.answers[w] = who
}

// Silence makes no worker answer for number w from now on.
func (m *Memory) Silence(w int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, w)
}

// Overhear makes a subscriber that never answers hear all questions from now on; false ends that.
func (m *Memory) Overhear(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bystander = on
}

// Expire removes the heartbeat of number w.
func (m *Memory) Expire(w int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.heartbeats, w)
}

// Wipe loses all records, heartbeats and the deployment; revisions continue to rise.
func (m *Memory) Wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records, m.heartbeats, m.deployment = nil, nil, workerid.Deployment{}
}

// WipeHistory loses all records and the deployment, and keeps the heartbeats.
func (m *Memory) WipeHistory() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records, m.deployment = nil, workerid.Deployment{}
}

// Deploy replaces the deployment; a zero d removes it.
func (m *Memory) Deploy(d workerid.Deployment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deployment = d
}

// Fake is one process's handle on a [Memory].
type Fake struct {
	*Memory
	hook atomic.Pointer[Hook]
}

var _ workerid.Registry = (*Fake)(nil)

// A Hook runs in place of a call; the parameter call makes the real one. A hook can fail without that, or make the
// real call and then fail, as if the acknowledgement were lost.
type Hook func(method string, call func() error) error

// ErrInjected is an error for hooks.
var ErrInjected = errors.New("workeridtest: injected failure")

// OnCall makes hook replace every call from now on; nil ends that.
func (f *Fake) OnCall(hook Hook) { f.hook.Store(&hook) }

func (f *Fake) do(ctx context.Context, method string, call func()) error {
	locked := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		call()
		return nil
	}
	if hook := f.hook.Load(); hook != nil && *hook != nil {
		return (*hook)(method, locked)
	}
	return locked()
}

// Deployment implements [workerid.Registry].
func (f *Fake) Deployment(ctx context.Context) (have workerid.Deployment, err error) {
	err = f.do(ctx, "Deployment", func() { have = f.deployment })
	if err == nil && have.ID == "" {
		err = workerid.ErrNoDeployment
	}
	return have, err
}

// Found implements [workerid.Registry].
func (f *Fake) Found(ctx context.Context, d workerid.Deployment) error {
	landed := false
	err := f.do(ctx, "Found", func() {
		if landed = f.deployment.ID == ""; landed {
			f.deployment = d
		}
	})
	if err == nil && !landed {
		err = workerid.ErrConflict
	}
	return err
}

// Records implements [workerid.Registry].
func (f *Fake) Records(ctx context.Context) (all map[int]workerid.Record, err error) {
	err = f.do(ctx, "Records", func() { all = maps.Clone(f.records) })
	return all, err
}

// Record implements [workerid.Registry].
func (f *Fake) Record(ctx context.Context, w int) (r workerid.Record, err error) {
	found := false
	err = f.do(ctx, "Record", func() { r, found = f.records[w] })
	if err == nil && !found {
		err = workerid.ErrNoRecord
	}
	return r, err
}

// Write implements [workerid.Registry].
func (f *Fake) Write(ctx context.Context, w int, r workerid.Record) (revision uint64, err error) {
	landed := false
	err = f.do(ctx, "Write", func() {
		if landed = f.records[w].Revision == r.Revision; !landed {
			return
		}
		if f.records == nil {
			f.records = make(map[int]workerid.Record)
		}
		f.revision++
		r.Revision = f.revision
		f.records[w] = r
	})
	if err == nil && !landed {
		err = workerid.ErrConflict
	}
	if err != nil {
		return 0, err
	}
	return r.Revision, nil
}

// Time implements [workerid.Registry].
func (f *Fake) Time(ctx context.Context) (ms int64, err error) {
	err = f.do(ctx, "Time", func() { ms = f.time() })
	return ms, err
}

// Report implements [workerid.Registry].
func (f *Fake) Report(ctx context.Context, w int, l workerid.Heartbeat) error {
	return f.do(ctx, "Report", func() {
		if f.heartbeats == nil {
			f.heartbeats = make(map[int]workerid.Heartbeat)
		}
		l.At = f.time()
		f.heartbeats[w] = l
	})
}

// Heartbeats implements [workerid.Registry].
func (f *Fake) Heartbeats(ctx context.Context) (all map[int]workerid.Heartbeat, err error) {
	err = f.do(ctx, "Heartbeats", func() { all = maps.Clone(f.heartbeats) })
	return all, err
}

// Leave implements [workerid.Registry].
func (f *Fake) Leave(ctx context.Context, w int) error {
	return f.do(ctx, "Leave", func() { delete(f.heartbeats, w) })
}

// Ask implements [workerid.Registry].
func (f *Fake) Ask(ctx context.Context, w int) (who workerid.Who, err error) {
	found, overheard := false, false
	err = f.do(ctx, "Ask", func() {
		who, found = f.answers[w]
		overheard = f.bystander
	})
	switch {
	case err != nil || found:
		return who, err
	case overheard:
		return who, workerid.ErrBystander
	}
	return who, workerid.ErrNoWorker
}
