package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A pipe sends requests without waiting for the replies to those before, and
// gets the replies on one subscription.
type pipe struct {
	nc    *nats.Conn
	inbox string // replies go to inbox.<number of the request>
	sub   *nats.Subscription

	mu      sync.Mutex
	sent    []time.Time
	took    []time.Duration // by number; 0: no reply yet
	err     error           // of some reply
	errors  int
	refused []int // the numbers of those that got an error
	replies int
	places  chan struct{} // nil: as many as like may be under way
}

// newPipe returns a pipe for n requests. At most window are under way at once;
// any number if that is 0.
func newPipe(nc *nats.Conn, n, window int) (*pipe, error) {
	p := &pipe{nc: nc, inbox: nc.NewInbox(), sent: make([]time.Time, n), took: make([]time.Duration, n)}
	if window > 0 {
		p.places = make(chan struct{}, window)
	}
	var err error
	if p.sub, err = nc.Subscribe(p.inbox+".*", p.take); err != nil {
		return nil, err
	}
	return p, p.sub.SetPendingLimits(-1, -1)
}

func (p *pipe) close() { p.sub.Unsubscribe() }

// send sends request number i, once there is a place for it.
func (p *pipe) send(ctx context.Context, i int, subject, body string) error {
	if p.places != nil {
		select {
		case p.places <- struct{}{}:
		case <-time.After(replyWithin):
			return fmt.Errorf("%s: no reply within %v to any of %d requests", subject, replyWithin, cap(p.places))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	p.sent[i] = time.Now()
	p.mu.Unlock()
	return p.nc.PublishRequest(subject, p.inbox+"."+strconv.Itoa(i), []byte(body))
}

func (p *pipe) take(m *nats.Msg) {
	now := time.Now()
	i, err := strconv.Atoi(strings.TrimPrefix(m.Subject, p.inbox+"."))
	p.mu.Lock()
	if e := errors.Join(err, errorOf(m)); e != nil {
		p.err = e
		p.errors++
		p.refused = append(p.refused, i)
	}
	if err == nil {
		p.took[i] = max(now.Sub(p.sent[i]), 1)
	}
	p.replies++
	p.mu.Unlock()
	if p.places != nil {
		<-p.places
	}
}

// wait returns when n replies are there, with an error if there was one in any.
func (p *pipe) wait(ctx context.Context, n int) error {
	for late := time.Now().Add(replyWithin); ; {
		p.mu.Lock()
		replies, err := p.replies, p.err
		p.mu.Unlock()
		switch {
		case replies >= n:
			return err
		case time.Now().After(late):
			return fmt.Errorf("%d of %d requests were not answered within %v", n-replies, n, replyWithin)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// askAll asks on each subject, again where the answer was an error, and returns
// how long all took and how many were errors.
func askAll(ctx context.Context, nc *nats.Conn, window int, subjects []string, body func(i int) string) (took time.Duration, refused int, err error) {
	const rounds = 10
	open := make([]int, len(subjects))
	for i := range open {
		open[i] = i
	}
	began := time.Now()
	for round := 0; len(open) > 0 && (err == nil || round < rounds); round++ {
		open, err = askOnce(ctx, nc, window, open, subjects, body)
		refused += len(open)
		if err != nil && len(open) == 0 {
			break
		}
	}
	return time.Since(began), refused, err
}

// askOnce asks on the subjects with the numbers that are open, and returns
// those that were refused, with one of the errors.
func askOnce(ctx context.Context, nc *nats.Conn, window int, open []int, subjects []string, body func(i int) string) (refused []int, err error) {
	p, err := newPipe(nc, len(subjects), window)
	if err != nil {
		return nil, err
	}
	defer p.close()
	for _, i := range open {
		if err := p.send(ctx, i, subjects[i], body(i)); err != nil {
			return nil, err
		}
	}
	err = p.wait(ctx, len(open))
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused, err
}
