package segmenttest

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/segment"
)

// Memory is a [segment.Store] in memory. The zero value is empty and ready to use. It is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	tags map[string]segment.Tag
}

var _ segment.Store = (*Memory)(nil)

// Load implements [segment.Store].
func (m *Memory) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	return m.LoadBy(ctx, segment.SystemClock, tag, n, floor)
}

// LoadBy is Load with the given clock in place of the machine's.
func (m *Memory) LoadBy(
	ctx context.Context, clock segment.Clock, tag string, n, floor int64,
) (segment.Loaded, error) {
	return m.load(ctx, clock, tag, floor, false, func(step int64) int64 { return max(n, step) })
}

// LoadStrictBy is LoadStrict with the given clock in place of the machine's.
func (m *Memory) LoadStrictBy(
	ctx context.Context, clock segment.Clock, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	n := join()
	return m.load(ctx, clock, tag, floor, true, func(int64) int64 { return n })
}

// LoadStrict implements [segment.Store].
func (m *Memory) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return m.LoadStrictBy(ctx, segment.SystemClock, tag, join, floor)
}

func (m *Memory) load(
	ctx context.Context, clock segment.Clock, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (segment.Loaded, error) {
	if err := ctx.Err(); err != nil {
		return segment.Loaded{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[tag]
	if !ok {
		return segment.Loaded{}, segment.ErrUnknownTag
	}
	if t.Disabled {
		return segment.Loaded{}, segment.ErrDisabled
	}
	if t.Rules.Strict && !strict {
		return segment.Loaded{Step: t.Step, Least: t.Least, Rules: t.Rules}, segment.ErrStrict
	}
	lowest, limit, err := t.Rules.Window(max(t.MaxID, floor), clock)
	if err != nil {
		return segment.Loaded{}, err
	}
	n := wanted(t.Rules.Step(t.Step))
	r, err := segment.NextRange(t.MaxID, max(floor, lowest), n, limit)
	if err == nil && strict && r.Len() < n {
		err = &segment.ExhaustedError{Left: r.Len(), Why: segment.ErrExhausted}
	}
	if err != nil {
		return segment.Loaded{}, err
	}
	t.MaxID = r.End
	m.putLocked(t)
	return segment.Loaded{Range: r, Step: t.Step, Least: t.Least, Rules: t.Rules}, nil
}

// Create implements [segment.Store].
func (m *Memory) Create(_ context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	t.MaxID = max(1, t.MaxID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.tags[t.Name]; ok {
		if !old.Disabled {
			return segment.Tag{}, segment.ErrExists
		}
		if !revive {
			return segment.Tag{}, segment.ErrDisabled
		}
		var err error
		if t, err = old.Revive(t, math.MaxInt64); err != nil {
			return segment.Tag{}, err
		}
	}
	return m.putLocked(t), nil
}

// Delete implements [segment.Store].
func (m *Memory) Delete(_ context.Context, tag string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[tag]
	if !ok {
		return segment.ErrUnknownTag
	}
	t.Disabled = true
	m.putLocked(t)
	return nil
}

// Update implements [segment.Store].
func (m *Memory) Update(_ context.Context, tag string, c segment.Change) (segment.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[tag]
	if !ok {
		return segment.Tag{}, segment.ErrUnknownTag
	}
	if t.Disabled {
		return segment.Tag{}, segment.ErrDisabled
	}
	t, err := c.Apply(t, math.MaxInt64)
	if err != nil {
		return segment.Tag{}, err
	}
	return m.putLocked(t), nil
}

// Look implements [segment.Store].
func (m *Memory) Look(ctx context.Context, tag string) (segment.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tags[tag]
	if !ok {
		return segment.Tag{}, segment.ErrUnknownTag
	}
	return t, ctx.Err()
}

// Poll implements [segment.Store].
func (m *Memory) Poll(ctx context.Context, see func(segment.Listing)) error {
	tags, err := m.List(ctx, "", math.MaxInt)
	if err == nil {
		see(segment.Listing{Tags: tags, Removed: func(string) bool { return true }})
	}
	return err
}

// Remove removes a tag without a trace, as `DELETE FROM leaf_alloc` does.
func (m *Memory) Remove(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tags, tag)
}

// List implements [segment.Store].
func (m *Memory) List(_ context.Context, after string, limit int) ([]segment.Tag, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return page(m.tags, after, limit), nil
}

func (m *Memory) putLocked(t segment.Tag) segment.Tag {
	if m.tags == nil {
		m.tags = make(map[string]segment.Tag)
	}
	t.Updated = time.Now()
	m.tags[t.Name] = t
	return t
}

// Faulty is a [segment.Store] whose loads and polls can be made to fail, to hang, or to succeed and return an error,
// also while it is in use.
type Faulty struct {
	segment.Store
	hook  atomic.Pointer[LoadHook]
	polls atomic.Pointer[PollHook]
}

// A PollHook replaces a Poll; poll is the real one.
type PollHook func(ctx context.Context, see func(segment.Listing), poll func(see func(segment.Listing)) error) error

// OnPoll replaces Poll by hook from now on; nil ends that.
func (f *Faulty) OnPoll(hook PollHook) { f.polls.Store(&hook) }

// Poll implements [segment.Store].
func (f *Faulty) Poll(ctx context.Context, see func(segment.Listing)) error {
	hook := f.polls.Load()
	if hook == nil || *hook == nil {
		return f.Store.Poll(ctx, see)
	}
	return (*hook)(ctx, see, func(see func(segment.Listing)) error { return f.Store.Poll(ctx, see) })
}

// A LoadHook replaces a load; load is the real one. If a hook invents a range, the tag's step is the length of it.
type LoadHook func(ctx context.Context, tag string, load func() (segment.Range, error)) (segment.Range, error)

// OnLoad replaces Load by hook from now on; nil ends that.
func (f *Faulty) OnLoad(hook LoadHook) { f.hook.Store(&hook) }

// Load implements [segment.Store].
func (f *Faulty) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	return f.load(ctx, tag, func() (segment.Loaded, error) { return f.Store.Load(ctx, tag, n, floor) })
}

// LoadStrict implements [segment.Store].
func (f *Faulty) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return f.load(ctx, tag, func() (segment.Loaded, error) { return f.Store.LoadStrict(ctx, tag, join, floor) })
}

func (f *Faulty) load(
	ctx context.Context, tag string, load func() (segment.Loaded, error),
) (segment.Loaded, error) {
	hook := f.hook.Load()
	if hook == nil || *hook == nil {
		return load()
	}
	var l segment.Loaded
	r, err := (*hook)(ctx, tag, func() (r segment.Range, err error) {
		l, err = load()
		return l.Range, err
	})
	if l.Range = r; l.Step == 0 {
		l.Step = r.Len()
	}
	return l, err
}

// ErrInjected is an error for the hooks of faulty stores.
var ErrInjected = errors.New("segmenttest: injected failure")
