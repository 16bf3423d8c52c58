package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/natsid/natsid/internal/natsembed"
)

// startServer starts the embedded NATS server, unless --nats names servers to join.
func (l *links) startServer(context.Context) (err error) {
	cfg := &l.cfg
	l.where = Where{URL: Redact(cfg.NATS)}
	if cfg.NATS != "" {
		return nil
	}
	l.reload = make(chan os.Signal, 1)
	if cfg.ListenConf != "" {
		signal.Notify(l.reload, syscall.SIGHUP)
	}
	l.embedded, err = natsembed.Run(natsembed.Config{
		Listen: cfg.Listen, File: cfg.ListenConf, StoreDir: filepath.Join(cfg.Data, "nats"), Log: cfg.Log,
	})
	if taken, ok := errors.AsType[*natsembed.TakenError](err); ok {
		return fmt.Errorf("%w: another program, most likely a NATS server, listens on %s; "+
			"join it with --nats nats://%s, or choose another address with --listen HOST:PORT",
			ErrListenTaken, taken.Address, taken.Address)
	}
	if err != nil {
		return err
	}
	if l.embedded.IsOpen() {
		cfg.Log.Warn("the embedded NATS server has no users: every program that reaches its address can take IDs, "+
			"delete tags, and write to the buckets, which can make IDs repeat; name users in --listen-conf",
			"listen-conf", cfg.ListenConf)
	}
	l.where = Where{URL: l.embedded.CallersURL(), Embedded: true}
	l.cfg.Access = inside(cfg.Access, cfg.ListenConf != "")
	_, address, _ := strings.Cut(l.where.URL, "://")
	cfg.NATS = "nats://" + address
	return nil
}

// inside returns the settings for this program's own connections to the embedded server. The connections stay inside
// the process, so they need no TLS. If the server has no users, they need no credentials.
func inside(given Access, hasUsers bool) Access {
	if !hasUsers {
		return Access{}
	}
	given.NATSCA, given.NATSCert, given.NATSKey = "", "", ""
	return given
}

func (l *links) stopServer() {
	if l.embedded != nil {
		signal.Stop(l.reload)
		l.embedded.Stop()
	}
}

// tendServer makes the embedded server write again after its disk was full, and makes it read its configuration again
// at each SIGHUP.
func (l *links) tendServer(ctx context.Context) {
	if l.embedded != nil {
		l.embedded.Tend(ctx, l.reload)
	}
}
