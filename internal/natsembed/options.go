package natsembed

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// options returns the options in the file. The settings that natsid needs override the file's.
func options(cfg Config) (*server.Options, error) {
	opts := new(server.Options)
	if cfg.File != "" {
		var err error
		if opts, err = server.ProcessConfigFile(cfg.File); err != nil {
			return nil, fmt.Errorf("natsembed: the configuration cannot be used: %w", err)
		}
		if err := refuse(opts, cfg.StoreDir); err != nil {
			return nil, fmt.Errorf("natsembed: %s %w", cfg.File, err)
		}
	}
	if err := listen(opts, cfg); err != nil {
		return nil, err
	}
	opts.ServerName = cmp.Or(opts.ServerName, "natsid")
	opts.JetStream, opts.StoreDir, opts.SyncAlways = true, cfg.StoreDir, true
	// nats-server's default is three quarters of the space that is free at the start, even if more becomes free.
	opts.JetStreamMaxStore = cmp.Or(opts.JetStreamMaxStore, 1<<50)
	opts.NoSigs = true
	// nats-server drops a connection after two unanswered pings. Until then it sends requests to a worker that hangs:
	// for 6 s, by default for 6 min.
	opts.PingInterval, opts.MaxPingsOut = 2*time.Second, 2
	if cfg.Websocket {
		opts.Websocket = server.WebsocketOpts{Host: opts.Host, Port: server.RANDOM_PORT, NoTLS: true}
	}
	return opts, nil
}

// refuse returns an error, without the name of the file, if the options make the server one of several, or move the
// store.
func refuse(opts *server.Options, store string) error {
	for part, has := range map[string]bool{
		"a cluster":                   opts.Cluster.Name != "" || opts.Cluster.Port != 0 || opts.Routes != nil,
		"a gateway":                   opts.Gateway.Name != "" || opts.Gateway.Port != 0,
		"a JetStream that is another": opts.JetStreamExtHint != "",
	} {
		if has {
			return fmt.Errorf("has %s, and the embedded NATS server is one alone: run nats-server, and join it "+
				"with --nats", part)
		}
	}
	if opts.StoreDir == "" || samePath(opts.StoreDir, store) {
		return nil
	}
	return fmt.Errorf("has the store_dir %s, and the store of the embedded NATS server is %s, beside natsid's own "+
		"files: remove store_dir, and choose the directory with --data", opts.StoreDir, store)
}

func samePath(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return a == b && errA == nil && errB == nil
}

// listen sets the address to that of the Host's first server, else the file's, else cfg.Listen.
func listen(opts *server.Options, cfg Config) (err error) {
	if cfg.at == "" && (opts.Host != "" || opts.Port != 0) {
		opts.Host, opts.Port = cmp.Or(opts.Host, server.DEFAULT_HOST), cmp.Or(opts.Port, server.DEFAULT_PORT)
		return nil
	}
	opts.Host, opts.Port, err = ParseListen(cmp.Or(cfg.at, cfg.Listen))
	return err
}

// address returns the address on which a server with these options listens.
func address(opts *server.Options) string {
	return net.JoinHostPort(opts.Host, strconv.Itoa(max(opts.Port, 0)))
}

// Reload makes the server use the present content of the file, such as its users and certificates. After an error
// nothing has changed.
func (h *Host) Reload() error {
	opts, err := options(h.cfg)
	if err != nil {
		return err
	}
	if err := h.server.Load().ReloadOptions(opts); err != nil {
		return fmt.Errorf("natsembed: %s: %w", h.cfg.File, err)
	}
	return nil
}

// CallersURL returns a URL for callers. If the server listens on all interfaces, its host is this machine's name.
func (h *Host) CallersURL() string {
	scheme, at := h.at()
	host, port, _ := net.SplitHostPort(at)
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host, _ = os.Hostname()
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// IsOpen reports whether every program on other machines can connect without credentials.
func (h *Host) IsOpen() bool {
	_, at := h.at()
	state, err := h.server.Load().Varz(nil)
	return err == nil && !state.AuthRequired && !Loopback(at)
}
