package workerid_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// Full storage, or no right to write or to ask, is no sign of other workers: it must not read as if all numbers had an
// owner.
func TestARefusedCallIsNoLostNumber(t *testing.T) {
	for _, refused := range []string{"Write", "Ask"} {
		synctest.Test(t, func(t *testing.T) {
			var calls, refusals atomic.Int64
			l := start(t, new(workeridtest.Memory), hooked(func(method string, call func() error) error {
				if calls.Add(1); method != refused {
					return call()
				}
				refusals.Add(1)
				return workeridtest.ErrInjected
			}))
			time.Sleep(10 * time.Second)
			if s := l.keeper.Status(); !errors.Is(s.Trouble, workeridtest.ErrInjected) || s.Held {
				t.Errorf("%s: %+v, want the error of the call", refused, s)
			}
			l.raised()
			before := calls.Load()
			time.Sleep(time.Minute)
			if n := calls.Load() - before; n > 2*60 || refusals.Load() == 0 {
				t.Errorf("%d calls in a minute, %d of %s in all; want 2 a second at most", n, refusals.Load(), refused)
			}
			l.reg.OnCall(nil)
			time.Sleep(20 * time.Second)
			if l.number(); l.issue().Tick == 0 {
				t.Errorf("%s: %+v, want IDs", refused, l.keeper.Status())
			}
			l.end()
		})
	}
}

// A late registry reports an error for each write until a time, and the write lands later.
type late struct {
	*workeridtest.Fake
	by    time.Duration
	until time.Time
}

func (l late) Write(ctx context.Context, w int, r workerid.Record) (uint64, error) {
	if time.Now().After(l.until) {
		return l.Fake.Write(ctx, w, r)
	}
	time.AfterFunc(l.by, func() { _, _ = l.Fake.Write(context.Background(), w, r) })
	return 0, workeridtest.ErrInjected
}

// A write may land after the worker has read that it did not.
func TestWritesThatLandLateBlockOneNumberOnly(t *testing.T) {
	for _, by := range []time.Duration{time.Millisecond, 400 * time.Millisecond, 3 * time.Second, 7 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, new(workeridtest.Memory), func(c *workerid.Config) {
					c.Registry = late{c.Registry.(*workeridtest.Fake), by, time.Now().Add(10 * time.Minute)}
				})
				time.Sleep(12 * time.Minute)
				records, err := l.reg.Records(t.Context())
				if err != nil || len(records) != 1 {
					t.Errorf("%d numbers are blocked, %v, want 1", len(records), err)
				}
				if l.number(); l.issue().Tick == 0 {
					t.Errorf("%+v, want IDs", l.keeper.Status())
				}
				l.end()
			})
		})
	}
}
