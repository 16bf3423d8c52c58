package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/rights"
)

// startServer starts the embedded NATS server, unless a NATS is joined.
func (l *links) startServer(context.Context) (err error) {
	cfg := l.cfg
	l.where = Where{URL: Redact(cfg.NATS)}
	if cfg.NATS != "" {
		return nil
	}
	lock, err := lockOf(cfg)
	if err != nil {
		return err
	}
	if l.embedded, err = embed(cfg, lock); err != nil {
		return err
	}
	l.where = Where{URL: l.embedded.CallersURL(), Embedded: true}
	if lock != nil {
		if l.where.Context, err = writeContexts(cfg, l.where.URL); err != nil {
			return err
		}
	}
	// This program's own connections are made inside the process: without TLS, and without credentials for other
	// servers.
	_, address, _ := strings.Cut(l.where.URL, "://")
	cfg.Access = Access{NATS: "nats://" + address}
	return nil
}

func embed(cfg *Config, lock *natsembed.Lock) (*natsembed.Host, error) {
	if lock == nil && !natsembed.Loopback(cfg.Listen) {
		cfg.Log.Warn("the embedded NATS server is open, by --insecure: every program that reaches its address can "+
			"take IDs, delete tags, and write to the buckets, which can make IDs repeat; restrict access to it",
			"listen", cfg.Listen)
	}
	h, err := natsembed.Run(natsembed.Config{
		Listen: cfg.Listen, StoreDir: filepath.Join(cfg.Data, "nats"), Lock: lock, Log: cfg.Log,
	})
	if errors.Is(err, natsembed.ErrTaken) {
		return nil, fmt.Errorf("%w: another program, most likely a NATS server, listens on %s; "+
			"join it with --nats nats://%s, or choose another address with --listen HOST:PORT",
			ErrListenTaken, cfg.Listen, cfg.Listen)
	}
	return h, err
}

// Each role has an inbox prefix of its own, since a subscriber to the replies of a user can read the user's answers.
// Callers have the prefix of all NATS clients, which worker and operator must not have.
var inboxPrefixes = map[rights.Role]string{
	rights.Caller: "_INBOX", rights.Operator: "_INBOX_operator", rights.Worker: "_INBOX_worker",
}

// userFile returns the file of a user, with its key in .nk or its context in .json.
func userFile(cfg *Config, role rights.Role, suffix string) string {
	return filepath.Join(cfg.Data, "users", string(role)+suffix)
}

// writeContexts writes a context for each user, with which the nats command and natsid connect to the server. It
// returns the file for callers.
func writeContexts(cfg *Config, url string) (caller string, err error) {
	for role, prefix := range inboxPrefixes {
		key, err := filepath.Abs(userFile(cfg, role, ".nk"))
		if err != nil {
			return "", fmt.Errorf("where is the key of the %s: %w", role, err)
		}
		text, err := json.MarshalIndent(map[string]string{
			"description": "natsid, as " + string(role), "url": url, "nkey": key, "inbox_prefix": prefix,
		}, "", "  ")
		if err != nil {
			panic(err) // cannot be: strings
		}
		if err := durable.Replace(userFile(cfg, role, ".json"), append(text, '\n')); err != nil {
			return "", fmt.Errorf("cannot write the context of the %s: %w", role, err)
		}
	}
	return userFile(cfg, rights.Caller, ".json"), nil
}

// lockOf returns the lock of the embedded server, with a user for each role, or nil if no certificate is given. At
// the first start it creates the keys of the users, in the data directory.
func lockOf(cfg *Config) (*natsembed.Lock, error) {
	if cfg.ListenCert == "" {
		return nil, nil
	}
	certificate, err := natsembed.OpenCertificate(cfg.ListenCert, cfg.ListenKey)
	if err != nil {
		return nil, fmt.Errorf("the certificate of --listen-cert and --listen-key cannot be used: %w; "+
			"give files in PEM that belong together", err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Data, "users"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the users: %w", err)
	}
	lock := &natsembed.Lock{Certificate: certificate}
	for _, role := range []rights.Role{rights.Caller, rights.Operator, rights.Worker} {
		key, err := natsembed.OpenKey(userFile(cfg, role, ".nk"))
		if err != nil {
			return nil, err
		}
		r := rights.Of(role, rights.Deployment{
			Namespace: cfg.Namespace, InboxPrefix: inboxPrefixes[role],
			ReplyTo:      []string{inboxPrefixes[rights.Operator]},
			MakesBuckets: true, Repairs: true,
		})
		lock.Users = append(lock.Users, natsembed.User{
			Key: key, Publish: rights.Texts(r.Publish), Subscribe: rights.Texts(r.Subscribe),
		})
		if role == rights.Worker {
			lock.Self = key
		}
	}
	return lock, nil
}

// inside returns the options of a connection of this program to the embedded server.
func inside(embedded *natsembed.Host) []nats.Option {
	// The server is in this process: if it reads nothing, this process stands still, and a reconnect would not help.
	opts := []nats.Option{nats.InProcessServer(embedded), nats.FlusherTimeout(nats.DefaultFlusherTimeout)}
	if key := embedded.Self(); key != nil {
		opts = append(opts, nats.Nkey(key.Public, key.Sign), nats.CustomInboxPrefix(inboxPrefixes[rights.Worker]))
	}
	return opts
}

func (l *links) stopServer() error {
	if l.embedded != nil {
		l.embedded.Stop()
	}
	return nil
}

// tendServer keeps the embedded server able to write after its disk was full.
func (l *links) tendServer(ctx context.Context) error {
	if l.embedded != nil {
		l.embedded.Tend(ctx)
	}
	return nil
}
