package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/worker/leafhttp"
)

// listenLeaf opens the address of Leaf's paths. Callers depend on the address: without it the program does not start.
func (p *program) listenLeaf(context.Context) error {
	if p.cfg.LeafHTTP == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.cfg.LeafHTTP)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: %s, where Leaf's paths are to be answered; choose another with --leaf-http ADDR",
			ErrListenTaken, p.cfg.LeafHTTP)
	case err != nil:
		return fmt.Errorf("cannot answer Leaf's paths: %w; choose another address with --leaf-http ADDR", err)
	}
	if !natsembed.Loopback(p.cfg.LeafHTTP) {
		p.cfg.Log.Warn("every program that reaches the address of Leaf's paths can take IDs: they have neither users "+
			"nor TLS", "leaf-http", p.cfg.LeafHTTP)
	}
	p.leaf = l
	return nil
}

// serveLeaf answers Leaf's paths until ctx ends.
func (p *program) serveLeaf(ctx context.Context) error {
	if p.leaf == nil {
		return nil
	}
	defer p.quit()
	return leafhttp.New(leafhttp.Config{
		IDs: worker.NewDirect(p.workerConfig()), Layout: p.cfg.Layout, Deadline: p.cfg.Deadline,
		Called: p.metrics.LeafCaller, Log: p.cfg.Log,
	}).Serve(ctx, p.leaf)
}
