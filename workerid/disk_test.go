package workerid_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// A disk is that of a state file.
type disk struct {
	mu     sync.Mutex
	file   []byte
	broken func() error // nil: it works
}

// errLanded says that a write failed after the file was replaced.
var errLanded = errors.New("input/output error")

func (d *disk) breaks(how func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = how
}

func (d *disk) write(data []byte) (err error) {
	d.mu.Lock()
	broken := d.broken
	d.mu.Unlock()
	if broken != nil {
		err = broken()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || errors.Is(err, errLanded) {
		d.file = data
	}
	return err
}

func (d *disk) claim() (token string, fence, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, _ := workerid.ReadState(d.file)
	return c.Token, c.Fence, c.Until
}

func (d *disk) start(t *testing.T, m *workeridtest.Memory) *life {
	l := &life{t: t, reg: &workeridtest.Fake{Memory: m}, err: make(chan error, 1)}
	l.keeper = workerid.New(workerid.Config{
		Registry: l.reg, Layout: layout, Instance: "me", Now: l.now,
		Use: l.use, Alarm: l.alarm,
	})
	l.keeper.Simulate(rand.New(rand.NewPCG(1, 1)), 100*time.Millisecond, "", d.file, d.write)
	l.run()
	time.Sleep(10 * time.Second)
	return l
}

// fails makes the disk of a life fail, and returns when it serves under another number.
func (d *disk) fails(l *life, how func() error) {
	w := l.number()
	d.breaks(how)
	time.Sleep(10 * time.Second)
	if l.number() == w || l.issue().Tick == 0 {
		l.t.Fatalf("%+v, want another number than %d to serve", l.keeper.Status(), w)
	}
	l.raised(workerid.StateFile)
}

// A write that hangs is waited for: the next one could be overtaken by it.
func TestNoWriteOfTheStateFileOvertakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		l := d.start(t, new(workeridtest.Memory))
		var writes atomic.Int64
		d.fails(l, func() error {
			if writes.Add(1) > 1 {
				t.Error("a second write begins while the first one hangs")
			}
			time.Sleep(10 * time.Minute)
			d.breaks(nil)
			return nil
		})
		w := l.number()
		time.Sleep(12 * time.Minute)
		if token, _, _ := d.claim(); token == "" || l.number() != w {
			t.Errorf("token %q in the file, %+v, want the claim on %d", token, l.keeper.Status(), w)
		}
		l.end()
	})
}

// A process that stood still while it wrote finds its timer and its write at their ends.
func TestAWriteThatEndsRightAfterItsTimeCostsNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		l := d.start(t, new(workeridtest.Memory))
		w := l.number()
		d.breaks(func() error {
			d.breaks(nil)
			time.Sleep(2100 * time.Millisecond)
			return nil
		})
		time.Sleep(time.Minute)
		if l.number() != w || l.issue().Tick == 0 {
			t.Errorf("%+v, want number %d to serve", l.keeper.Status(), w)
		}
		l.raised()
		l.end()
	})
}

// Each write is synced. A disk may hang for most of the time between two of them, and no ID waits.
func TestTheFenceIsMovedTwiceInItsReachAndBeforeAnIDWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		l := d.start(t, new(workeridtest.Memory))
		var writes atomic.Int64
		d.breaks(func() error {
			if writes.Add(1)%4 == 0 {
				time.Sleep(1400 * time.Millisecond)
			}
			return nil
		})
		for range 3000 {
			if l.issue().Tick == 0 {
				t.Fatalf("no ID: %+v", l.keeper.Status())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := writes.Load(); n < 19 || n > 21 {
			t.Errorf("%d writes of the state file in 30 s, want 20", n)
		}
		l.end()
	})
}
