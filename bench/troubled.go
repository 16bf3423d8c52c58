package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker"
)

// The tags of a troubled worker. Ranges are small, and stay small, so that there are
// many loads: a range of a steady tag lasts 0.5 s, one of the hot tag 0.1 s, less
// than a slow load takes.
const (
	troubledStep = 100
	steadyTags   = 10
	steadyRate   = 200  // IDs/s of each
	hotRate      = 1000 // IDs/s of the hot tag
	hangingTags  = 60
	hotTag       = "hot"
	hangingTag   = "hanging" // followed by a number
	steadyTag    = "steady"
)

// troubles is the duration of loads: of hanging tags, and of all others. hang is longer than any load may take.
var troubles = map[string]struct{ hanging, others time.Duration }{
	"well":    {quickLoad, quickLoad},
	"slow":    {slowLoad, slowLoad},
	"hanging": {hang, quickLoad},
}

const (
	quickLoad = time.Millisecond
	slowLoad  = 200 * time.Millisecond
	hang      = time.Hour

	troubleSubject = "bench.trouble" // the subject of requests that name one of troubles
	statements     = 32              // most statements that a database takes at once, as in mysqlstore
)

// A troubledStore is a store in memory that behaves like a database in trouble.
type troubledStore struct {
	segment.Store
	trouble atomic.Pointer[string]
	places  chan struct{}
}

// Load implements [segment.Store].
func (s *troubledStore) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return segment.Loaded{}, ctx.Err()
	}
	defer func() { <-s.places }()
	take := troubles[*s.trouble.Load()].others
	if strings.HasPrefix(tag, hangingTag) {
		take = troubles[*s.trouble.Load()].hanging
	}
	select {
	case <-time.After(take):
		return s.Store.Load(ctx, tag, n, floor)
	case <-ctx.Done():
		return segment.Loaded{}, ctx.Err()
	}
}

// runTroubled is a worker of natsid on a troubled store, assembled as natsid does.
func runTroubled(url string) error {
	store := &troubledStore{Store: new(segmenttest.Memory), places: make(chan struct{}, statements)}
	well := "well"
	store.trouble.Store(&well)
	control, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer control.Close()
	_, err = control.Subscribe(troubleSubject, func(m *nats.Msg) {
		trouble := string(m.Data)
		if _, known := troubles[trouble]; known {
			store.trouble.Store(&trouble)
			m.Respond(nil)
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the parent ends it
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	serveTroubled(ctx, url, store)
	return nil
}

func serveTroubled(ctx context.Context, url string, store segment.Store) {
	const deadline = 1500 * time.Millisecond
	segments := segment.New(segment.Config{
		Store: store, Deadline: deadline,
		MaxStep: troubledStep, AutoStep: troubledStep,
	})
	defer segments.Close()
	issuer := snowflake.NewIssuer(deadline, 1, func() int64 { return time.Now().UnixMilli() })
	worker.New(worker.Config{
		Namespace: "id", Version: "1.0.0", Segments: segments, Store: store,
		Snowflakes: issuer, Layout: snowflake.Leaf, MaxBatch: 1000, Deadline: deadline,
		Number:   func() (int, bool, any) { return 0, false, nil },
		Instance: func() string { return "troubled" },
		Dial:     func(_ []string, opts ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, opts...) },
	}).Run(ctx)
}

// setTrouble sets the loads of the troubled worker to a trouble, from now on.
func setTrouble(nc *nats.Conn, trouble string) error {
	if _, err := nc.Request(troubleSubject, []byte(trouble), replyWithin); err != nil {
		return fmt.Errorf("setting the trouble of the worker: %w", err)
	}
	return nil
}

// victims are the callers of tags whose loads hang.
type victims struct {
	refused, served, lost atomic.Int64
	longest               atomic.Int64 // wait for a refusal, ns
}

// run requests IDs of a hanging tag, one after the other, until ctx ends.
func (v *victims) run(ctx context.Context, nc *nats.Conn, number int) {
	for ctx.Err() == nil {
		asked := time.Now()
		reply, err := nc.RequestWithContext(ctx, fmt.Sprint("id.segment.", hangingTag, number), nil)
		switch {
		case ctx.Err() != nil:
		case err != nil && !errors.Is(err, nats.ErrNoResponders):
			v.lost.Add(1)
		case err == nil && errorOf(reply) == nil:
			v.served.Add(1)
		default:
			v.refused.Add(1)
			// One of two concurrent updates may be lost.
			v.longest.Store(max(v.longest.Load(), int64(time.Since(asked))))
		}
	}
}
