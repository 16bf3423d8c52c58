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

// A Host runs a [Server], and replaces the server after a write to a full disk has failed: nats-server refuses all
// later writes to that stream until a restart, even when the disk has room again.
//
// Law: a Host loses no acknowledged write: each was synced before its acknowledgement, so the next server reads it from
// disk. The Host restarts the whole server: while JetStream alone restarts, it answers "stream not found", and a worker
// would take its bucket for lost. Clients of the server reconnect when all streams are available.
//
// All methods are safe for concurrent use.
type Host struct {
	cfg Config

	server  atomic.Pointer[Server]
	trouble atomic.Pointer[error] // why a stream cannot be written, by the last check of Tend; nil before the first

	// Used by Tend alone.
	reported string    // the last health report of nats-server, "" for a healthy server
	since    time.Time // when nats-server first reported it
}

// Run starts a server. Call [Host.Tend] to have it replaced when it cannot write, and [Host.Stop] to end it.
func Run(cfg Config) (*Host, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s, err := Start(cfg)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg}
	h.server.Store(s)
	_, h.cfg.at = h.at() // the next server must listen where clients reconnect
	return h, nil
}

// at returns the scheme and the address of the server's URL.
func (h *Host) at() (scheme, address string) {
	scheme, address, _ = strings.Cut(h.server.Load().ClientURL(), "://")
	return scheme, address
}

// InProcessConn connects to the present server. It implements [nats.InProcessConnProvider].
func (h *Host) InProcessConn() (net.Conn, error) { return h.server.Load().InProcessConn() }

// Stop ends the server. Tend must have returned.
func (h *Host) Stop() {
	s := h.server.Load()
	s.Shutdown()
	s.WaitForShutdown()
}

const (
	lookEvery = time.Second      // interval of checks whether streams can be written
	mostPause = time.Minute      // the longest pause between two restarts
	standsFor = 10 * time.Second // how long a health report must last to count, unless it is a write error
)

// Tend runs until ctx ends. It restarts the server if a stream cannot be written although the disk can, and calls
// [Host.Reload] for each signal on reload. The pause between two restarts doubles up to a minute, since a stream may
// fail for another reason than a full disk.
func (h *Host) Tend(ctx context.Context, reload <-chan os.Signal) {
	pause, restarted := lookEvery, time.Time{}
	for h.wait(ctx, reload) == nil {
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

// wait waits for lookEvery. On a signal it reloads the configuration instead. It returns an error once ctx has ended.
func (h *Host) wait(ctx context.Context, reload <-chan os.Signal) error {
	select {
	case <-reload:
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

// look returns why a stream cannot be written, nil if all can. nats-server also reports a stream that is just being
// created or deleted. So a report other than a write error counts only if it lasts for standsFor.
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

// probeDisk returns an error if the disk has no room for 256 KiB, enough for many marks and records.
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

// restart replaces the server by a new one, and retries until that one runs or ctx ends.
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
