package natsembed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

// A Host runs a [Server], and replaces it by another one when it can write no more. A nats-server whose disk was full
// for one write refuses all later writes of that stream for its whole life, though space is free again.
//
// Law: a Host loses no acknowledged write: each was synced before, so the next server reads it from disk. The Host
// starts a whole server, not JetStream alone in the old server: that would answer "stream not found" while it reads
// the streams, and a worker must not take its bucket for lost. To clients it is like any restart of a server: they
// reconnect when all streams are available.
//
// All methods are safe for concurrent use.
type Host struct {
	cfg Config

	server  atomic.Pointer[Server]
	trouble atomic.Pointer[error] // why a stream cannot be written, at the last check of Tend; nil before it

	// Used by Tend alone: the last health report of nats-server, and the time of its first appearance.
	reported string
	since    time.Time
}

// Run starts a server. [Host.Tend] keeps it able to write, [Host.Stop] ends it.
func Run(cfg Config) (*Host, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s, err := Start(cfg)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg}
	h.server.Store(s)
	_, h.cfg.at = h.at() // clients find the next server on the same port
	return h, nil
}

// at returns the scheme of the server's URL, and where it listens.
func (h *Host) at() (scheme, address string) {
	scheme, address, _ = strings.Cut(h.server.Load().ClientURL(), "://")
	return scheme, address
}

// InProcessConn connects to the server that runs now. It implements [nats.InProcessConnProvider].
func (h *Host) InProcessConn() (net.Conn, error) { return h.server.Load().InProcessConn() }

// Stop ends the server. Tend must have returned.
func (h *Host) Stop() {
	s := h.server.Load()
	s.Shutdown()
	s.WaitForShutdown()
}

const (
	lookEvery = time.Second // interval of checks whether streams can be written
	mostPause = time.Minute // the longest pause between two restarts
	standsFor = 10 * time.Second
)

// Tend calls Reload for each value of again, and restarts the server when a stream cannot be written though the disk
// can, until ctx ends. The pause between restarts doubles up to a minute, since the stream may fail for another reason
// than a full disk.
func (h *Host) Tend(ctx context.Context, again <-chan os.Signal) {
	pause, restarted := lookEvery, time.Time{}
	for h.wait(ctx, again) == nil {
		trouble := h.look()
		if trouble == nil {
			if time.Since(restarted) > 2*pause {
				pause = lookEvery
			}
			continue
		}
		h.cfg.Log.Error("no ranges are loaded and no worker number is renewed until the disk has room; then the "+
			"server is restarted by itself", "error", trouble)
		if time.Since(restarted) < pause || probeDisk(h.cfg.StoreDir) != nil {
			continue
		}
		pause = min(2*pause, mostPause)
		h.restart(ctx)
		restarted = time.Now()
	}
}

// wait waits until the next look, and reloads if asked to.
func (h *Host) wait(ctx context.Context, again <-chan os.Signal) error {
	select {
	case <-again:
		if err := h.Reload(); err != nil {
			h.cfg.Log.Error("the configuration of the embedded NATS server cannot be used; it stays as it was",
				"error", err)
			return nil
		}
		h.cfg.Log.Info("the embedded NATS server has read its configuration again")
	case <-time.After(lookEvery):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// look returns why a stream cannot be written, nil if all can. nats-server also reports an error for a stream that is
// just being created or deleted. So an error other than that of a write counts only if it lasts for standsFor.
func (h *Host) look() (trouble error) {
	text := ""
	if health := h.server.Load().Healthz(nil); health != nil {
		text = health.Error
	}
	if text != h.reported {
		h.reported, h.since = text, time.Now()
	}
	if text != "" && (strings.Contains(text, " write error: ") || time.Since(h.since) >= standsFor) {
		trouble = fmt.Errorf("the embedded NATS server cannot write: %s; free space on the disk of %s",
			text, h.cfg.StoreDir)
	}
	h.trouble.Store(&trouble)
	return trouble
}

// Trouble returns why the server cannot write, or nil.
func (h *Host) Trouble() error {
	if trouble := h.trouble.Load(); trouble != nil {
		return *trouble
	}
	return nil
}

// probeDisk returns an error if the disk has no room for 256 KiB, the size of several marks and records.
func probeDisk(dir string) error {
	name := filepath.Join(dir, "probe")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	defer f.Close()
	if _, err := f.Write(make([]byte, 256<<10)); err != nil {
		return err
	}
	return f.Sync()
}

// restart replaces the present server by another one, and retries until that runs or ctx ends.
func (h *Host) restart(ctx context.Context) {
	h.cfg.Log.Warn("the disk of the embedded NATS server can be written again; the server is restarted")
	old := h.server.Load()
	old.Shutdown()
	old.WaitForShutdown()
	for {
		s, err := Start(h.cfg)
		if err == nil {
			h.server.Store(s)
			h.cfg.Log.Info("the embedded NATS server runs again")
			return
		}
		h.cfg.Log.Error("the embedded NATS server does not start again; it is tried until it does", "error",
			fmt.Errorf("natsembed: restart: %w", err))
		if jitter.Sleep(ctx, lookEvery) != nil {
			return
		}
	}
}
