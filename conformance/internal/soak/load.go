//go:build unix

package soak

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/conformance/internal/adapter"
	"github.com/natsid/natsid/conformance/internal/contract"
	"github.com/natsid/natsid/subjects"
)

// object is JSON.
type object = map[string]any

// A draw is a call that callers make over and over.
type draw struct {
	kind   kind
	method string
	params object
	loops  int  // of a client; each ends before it begins again
	full   bool // only for profile full
}

var (
	loose  = object{"tag": looseTag}
	strict = object{"tag": strictTag}
	flakes = object{"snowflake": true}
	held   = object{"tag": looseTag, "prefetch": object{"n": 1000, "maxAgeMs": 1000}}
)

var draws = []draw{
	{ofLoose, "next", object{"target": loose}, 3, false},
	{ofLoose, "nextN", object{"target": loose, "n": 100}, 2, false},
	{ofLoose, "burst", object{"target": loose, "calls": 50}, 2, true},
	{ofLoose, "burst", object{"target": held, "calls": 100}, 1, true},
	{ofFlakes, "next", object{"target": flakes}, 2, false},
	{ofFlakes, "burst", object{"target": flakes, "calls": 50}, 1, true},
	{ofStrict, "next", object{"target": strict}, 3, false},
	{ofStrict, "burst", object{"target": strict, "calls": 20}, 1, true},
}

const (
	// pause is between two calls of a loop.
	pause = 10 * time.Millisecond
	// A client asks again until this time is up: JetStream needs up to 11 s to elect a leader, for which strict tags
	// wait. A language without a client asks once, and workers answer within 1.5 s.
	limit     = 30 * time.Second
	wireLimit = 2 * time.Second
	hangs     = 10 * time.Second // beyond its limit
)

// A load is all callers.
type load struct {
	judge *judge
	quit  chan struct{}
	loops sync.WaitGroup

	mu       sync.Mutex
	adapters []*adapter.Adapter
	faults   []error
}

// startLoad starts the loops of all clients. A client has one process; a language without a client has one for each
// draw, since its calls are made one after the other.
func startLoad(cfg Config, f *fleet, j *judge) (*load, error) {
	l := &load{judge: j, quit: make(chan struct{})}
	for _, c := range cfg.Clients {
		var shared *adapter.Adapter
		for _, d := range draws {
			if d.full && c.Profile != contract.Full {
				continue
			}
			a, loops := shared, d.loops
			if a == nil {
				var err error
				if a, err = l.connect(cfg, c, f); err != nil {
					return l, err
				}
			}
			if c.Profile == contract.Full {
				shared = a
			} else {
				loops = 1
			}
			for range loops {
				l.loops.Go(func() { l.loop(a, c, d) })
			}
		}
	}
	return l, nil
}

func (l *load) connect(cfg Config, c Client, f *fleet) (*adapter.Adapter, error) {
	a, err := adapter.Start(cfg.Contract, c.Command)
	if err != nil {
		return nil, err
	}
	l.adapters = append(l.adapters, a)
	_, err = a.Begin("connect", object{
		"servers": urlsOf(f.callers), "namespace": string(subjects.DefaultNamespace),
	}).Wait(time.Minute)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return a, nil
}

// loop draws IDs until the load stops.
func (l *load) loop(a *adapter.Adapter, c Client, d draw) {
	within := limit
	if c.Profile != contract.Full {
		within = wireLimit
	}
	params := object{"timeoutMs": within.Milliseconds()}
	for k, v := range d.params {
		params[k] = v
	}
	for {
		select {
		case <-l.quit:
			return
		case <-time.After(pause):
		}
		e := l.judge.begin(c.Name, d.kind)
		result, err := a.Begin(d.method, params).Wait(within + hangs)
		if f, ok := err.(*adapter.Fault); ok {
			l.fail(fmt.Errorf("%s: %w", c.Name, f))
			return
		}
		if err := l.judge.end(e, result, err); err != nil {
			l.fail(err)
			return
		}
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, err)
}

// stop ends the load when the calls under way have ended, and returns the faults of its adapters.
func (l *load) stop() error {
	close(l.quit)
	l.loops.Wait()
	err := errors.Join(l.faults...)
	for _, a := range l.adapters {
		if err == nil {
			err = a.Close()
		} else {
			a.Kill()
		}
	}
	return err
}
