package app

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/worker"
)

// A lack remembers which rights this user of NATS lacked when the server was last asked.
type lack struct {
	text  atomic.Pointer[string] // the missing rights, as last logged; nil before the first answer
	modes atomic.Int64           // how many modes cannot be served for lack of a right
}

// lacks asks the server for the rights of this user. It returns an error for each mode that needs a missing right. It
// logs each change of the missing rights, even if no mode needs them.
func (p *program) lacks(ctx context.Context, nc *nats.Conn) (map[worker.Mode]error, error) {
	held, err := rights.Ask(ctx, nc)
	if err != nil {
		p.cfg.Log.Debug("NATS does not say what this user may do", "error", err)
		return nil, err
	}
	missing := rights.Of(rights.Worker, rights.Deployment{
		Namespace: p.cfg.Namespace, InboxPrefix: p.cfg.InboxPrefix, JSDomain: p.cfg.JSDomain, JSPrefix: p.cfg.JSPrefix,
		NoGrants: p.cfg.Grants == 0, MakesBuckets: p.storage.late != nil,
	}).Missing(held)
	text := missing.String()
	switch before := p.lack.text.Swap(&text); {
	case before != nil && *before == text, before == nil && text == "":
	case text != "":
		p.cfg.Log.Warn("this user of NATS lacks rights: give it those of `natsid permissions worker`", "may not", text)
	default:
		p.cfg.Log.Info("this user of NATS lacks no right any more")
	}
	lacks := map[worker.Mode]error{}
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags, worker.Relay} {
		if text := missing.For(string(mode)).String(); text != "" {
			lacks[mode] = fmt.Errorf("this user of NATS may not %s: allow it; "+
				"`natsid permissions worker` prints what a worker needs", text)
		}
	}
	if p.lack.modes.Swap(int64(len(lacks))) > int64(len(lacks)) { // a reconnect repeats subscriptions that NATS refused
		_ = p.links.control.ForceReconnect() // it fails only on a closed connection
	}
	return lacks, nil
}
