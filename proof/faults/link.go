//go:build linux

package main

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A link is a connection of callers to one nats-server.
type link struct {
	nc      *nats.Conn
	inbox   string       // subject prefix of its answers: inbox.<kind>.<sequence number>
	epoch   atomic.Int64 // how often it was lost
	leaving atomic.Bool  // its server is about to stop
}

// connect adds a link to the first of the servers that can be reached.
func (l *load) connect(urls string) error {
	k := &link{inbox: nats.NewInbox()}
	nc, err := nats.Connect(urls, nats.Name("faults"), nats.DontRandomize(),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true), nats.Timeout(time.Second),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// Answers were dropped here, and their IDs with them. Other errors show as losses.
			if errors.Is(err, nats.ErrSlowConsumer) {
				l.invalidate(err)
			}
		}),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { k.epoch.Add(1) }),
		nats.ReconnectHandler(func(*nats.Conn) { k.leaving.Store(false) }),
		nats.LameDuckModeHandler(func(*nats.Conn) { go l.leave(k) }))
	if err != nil {
		return err
	}
	k.nc = nc
	l.links = append(l.links, k)
	if _, err := nc.Subscribe(k.inbox+".*.*", l.answered); err != nil {
		return err
	}
	_, err = nc.Subscribe(string(namespace)+".alarm.*", l.alarmed)
	return err
}

// leave acts as a caller whose server is about to stop: it sends no more requests there, waits for its answers, and
// reconnects to another server.
func (l *load) leave(k *link) {
	k.leaving.Store(true)
	epoch := k.epoch.Load()
	for late := time.Now().Add(callerWaits); l.waitsOn(k) && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
	if k.epoch.Load() == epoch { // else the server has disconnected it already
		_ = k.nc.ForceReconnect() // it fails only on a closed connection
	}
}

func (l *load) waitsOn(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.pending {
		if r.link == k {
			return true
		}
	}
	return false
}
