package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/natsid/natsid/internal/monitor"
	"github.com/natsid/natsid/worker"
)

// ready returns for each mode why it cannot issue, nil if it can.
func (p *program) ready() map[string]error {
	segments, snowflakes := p.segmentTrouble(), p.snowflakeTrouble()
	return map[string]error{string(worker.Segment): segments, string(worker.Snowflake): snowflakes}
}

var errDisconnected = errors.New("not connected to NATS")

func (p *program) connected() (*serving, bool) {
	s := p.serving.Load()
	return s, s != nil && s.conn.IsConnected()
}

func (p *program) segmentTrouble() error {
	if _, ok := p.connected(); !ok {
		return errDisconnected
	}
	if p.marks != nil {
		if err := p.marks.Trouble(); err != nil {
			return err
		}
	}
	return p.segments.Trouble()
}

func (p *program) snowflakeTrouble() error {
	s, ok := p.connected()
	if !ok {
		return errDisconnected
	}
	err := s.worker.SnowflakeTrouble()
	if trouble := p.keeper.Status().Trouble; err != nil && trouble != nil {
		return fmt.Errorf("%w (%w)", err, trouble)
	}
	return err
}

// announce calls cfg.Ready once all modes can issue.
func (p *program) announce(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.segmentTrouble() != nil || p.snowflakeTrouble() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	s := p.keeper.Status()
	p.where.Instance, p.where.Number = s.Instance, s.Number
	if p.cfg.Ready != nil {
		p.cfg.Ready(p.where)
	}
	return nil
}

// listenHTTP opens the address of the monitor. One that is taken is no reason
// not to serve IDs.
func (p *program) listenHTTP(context.Context) error {
	if p.cfg.HTTP == "" {
		return nil
	}
	l, err := net.Listen("tcp", p.cfg.HTTP)
	if err != nil {
		p.cfg.Log.Warn("health, readiness and metrics are not served: cannot listen; "+
			"choose another address with --http ADDR, or none with --http ''", "error", err)
		return nil
	}
	p.http, p.where.HTTP = l, l.Addr().String()
	return nil
}

// monitor serves HTTP until ctx ends.
func (p *program) monitor(ctx context.Context) error {
	if p.http == nil {
		return nil
	}
	if err := monitor.Serve(ctx, p.http, monitor.Handler(p.ready, p.metrics.Handler())); err != nil {
		p.cfg.Log.Error("HTTP failed: health, readiness and metrics are no longer served; restart natsid", "error", err)
	}
	return nil
}
