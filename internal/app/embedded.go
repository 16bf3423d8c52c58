package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/natsid/natsid/internal/natsembed"
)

// startServer starts the embedded NATS server, unless a NATS is joined.
func (p *program) startServer(context.Context) (err error) {
	cfg := &p.cfg
	if cfg.NATS == "" {
		if p.links.embedded, err = embed(cfg); err != nil {
			return err
		}
		cfg.Access = Access{NATS: p.links.embedded.ClientURL()} // without credentials for others
	}
	p.where = Where{URL: Redact(cfg.NATS), Embedded: p.links.embedded != nil}
	return nil
}

func embed(cfg *Config) (*natsembed.Host, error) {
	if !natsembed.Loopback(cfg.Listen) {
		cfg.Log.Warn("the embedded NATS server is open, by --insecure: whoever reaches its address can take IDs, "+
			"delete tags, and write to the buckets, which can make IDs repeat; let nobody else reach it",
			"listen", cfg.Listen)
	}
	h, err := natsembed.Run(natsembed.Config{
		Listen: cfg.Listen, StoreDir: filepath.Join(cfg.Data, "nats"), Log: cfg.Log,
	})
	if errors.Is(err, natsembed.ErrTaken) {
		return nil, fmt.Errorf("%w: another program, most likely a NATS server, listens on %s; "+
			"join it with --nats nats://%s, or choose another address with --listen HOST:PORT",
			ErrListenTaken, cfg.Listen, cfg.Listen)
	}
	return h, err
}

func (p *program) stopServer() error {
	if p.links.embedded != nil {
		p.links.embedded.Stop()
	}
	return nil
}

// tendServer keeps the embedded server able to write after its disk was full.
func (p *program) tendServer(ctx context.Context) error {
	if p.links.embedded != nil {
		p.links.embedded.Tend(ctx)
	}
	return nil
}
