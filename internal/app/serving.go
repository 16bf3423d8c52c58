package app

import (
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/worker"
)

// dialServing connects once for the worker, to one of the known servers. The timeout is per server: a connection that
// is replaced waits for the new one.
func (p *program) dialServing(announced []string, opts ...nats.Option) (*nats.Conn, error) {
	cfg := p.cfg
	cfg.NATS = others(cfg.NATS, announced)
	cork := &worker.Cork{Inside: p.links.embedded}
	dialed := nats.SetCustomDialer(cork)
	if p.links.embedded != nil {
		dialed = nats.InProcessServer(cork)
	}
	all := append(options(cfg, p.links.embedded), nats.Name("natsid"), nats.Timeout(servingTimeout), dialed)
	nc, err := Join(cfg, append(all, opts...))
	if err != nil {
		return nil, WithoutURL(err)
	}
	return nc, nil
}

// servingTimeout is enough for a server most of a second away.
const servingTimeout = 2 * time.Second

// others returns the URLs of all known servers: those given, and those that a server announced, with the user of the
// first given one.
func others(given string, announced []string) string {
	first, _, _ := strings.Cut(given, ",")
	u, err := url.Parse(first)
	if err != nil || u.User == nil {
		return strings.Join(append([]string{given}, announced...), ",")
	}
	for _, s := range announced {
		if t, err := url.Parse(s); err == nil {
			t.User = u.User
			given += "," + t.String()
		}
	}
	return given
}
