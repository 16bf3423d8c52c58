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

// A pipe sends requests without waiting for earlier replies, and receives the replies on one subscription.
type pipe struct {
	nc    *nats.Conn
	inbox string // replies go to inbox.<number of the request>
	sub   *nats.Subscription

	mu      sync.Mutex
	sent    []time.Time
	took    []time.Duration // by number; 0: no reply yet
	err     error           // of one of the replies
	errors  int
	refused []int // the numbers of the requests that got an error
	replies int
	places  chan struct{} // nil: any number may be in flight
}

// newPipe returns a pipe for n requests. At most window are in flight at once; any
// number if window is 0.
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
	if err == nil { // else i is not the number of a request
		p.took[i] = max(now.Sub(p.sent[i]), 1)
	}
	p.replies++
	p.mu.Unlock()
	if p.places != nil {
		<-p.places
	}
}

// wait returns when n replies have arrived, with one of their errors.
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

// A batch is requests that are sent together, at most window in flight at once.
type batch struct {
	nc       *nats.Conn
	window   int
	subjects []string
	body     func(i int) string
}

// send sends all requests, and repeats those whose answer was an error. It returns the duration, and how many answers
// were errors.
func (b batch) send(ctx context.Context) (took time.Duration, refused int, err error) {
	const rounds = 10
	open := make([]int, len(b.subjects))
	for i := range open {
		open[i] = i
	}
	began := time.Now()
	for round := 0; len(open) > 0 && (err == nil || round < rounds); round++ {
		open, err = b.sendOnce(ctx, open)
		refused += len(open)
		if err != nil && len(open) == 0 {
			break
		}
	}
	return time.Since(began), refused, err
}

// sendOnce sends the requests with these numbers, and returns those that were refused, with one of the errors.
func (b batch) sendOnce(ctx context.Context, open []int) (refused []int, err error) {
	p, err := newPipe(b.nc, len(b.subjects), b.window)
	if err != nil {
		return nil, err
	}
	defer p.close()
	for _, i := range open {
		if err := p.send(ctx, i, b.subjects[i], b.body(i)); err != nil {
			return nil, err
		}
	}
	err = p.wait(ctx, len(open))
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused, err
}
