package tests

import (
	"crypto/x509"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/testkit/wait"
)

// A renewal is a change of what a server accepts, and of the files that a worker shows.
type renewal struct {
	args   []string
	before *server.Options
	after  func() *server.Options
	files  func()
}

// try runs a worker through the renewal: the server starts again, refuses what was shown before, and the files follow.
func (r renewal) try(t *testing.T) {
	r.before.JetStream, r.before.StoreDir = true, t.TempDir()
	addr := freePort(t) // which nobody takes between the two servers
	s := launchOn(t, addr, r.before)
	args := append(r.args, "--nats=nats://"+addr)
	servesWith(t, args...)
	s.Shutdown()
	s.WaitForShutdown()
	after := r.after()
	after.JetStream, after.StoreDir = true, r.before.StoreDir
	launchOn(t, addr, after)
	if text := gets(t, args...); text == "" {
		t.Error("the server accepts what it must refuse")
	}
	r.files()
	wait.Until(t, "an ID from the worker that still runs", func() bool { return gets(t, args...) == "" })
}

func TestWhatIsRenewedOnDiskNeedsNoRestart(t *testing.T) {
	t.Parallel()
	t.Run("password", func(t *testing.T) {
		t.Parallel()
		password := file(t, "password", "old")
		renewal{
			args:   []string{"--user=me", "--password-file=" + password},
			before: &server.Options{Username: "me", Password: "old"},
			after:  func() *server.Options { return &server.Options{Username: "me", Password: "new"} },
			files:  func() { rewrite(t, password, "new") },
		}.try(t)
	})
	t.Run("token", func(t *testing.T) {
		t.Parallel()
		token := file(t, "token", "old")
		renewal{
			args:   []string{"--token-file=" + token},
			before: &server.Options{Authorization: "old"},
			after:  func() *server.Options { return &server.Options{Authorization: "new"} },
			files:  func() { rewrite(t, token, "new") },
		}.try(t)
	})
	t.Run("nkey", func(t *testing.T) {
		t.Parallel()
		first, second := newSigner(t), newSigner(t)
		seed := file(t, "user.nk", first.seed)
		accepts := func(s signer) *server.Options {
			return &server.Options{Nkeys: []*server.NkeyUser{{Nkey: s.public}}}
		}
		renewal{
			args: []string{"--nkey=" + seed}, before: accepts(first),
			after: func() *server.Options { return accepts(second) },
			files: func() { rewrite(t, seed, second.seed) },
		}.try(t)
	})
	t.Run("credentials", func(t *testing.T) {
		t.Parallel()
		op := newOperator(t)
		first, second := newSigner(t), newSigner(t)
		creds := file(t, "user.creds", op.creds(first))
		renewal{
			args: []string{"--creds=" + creds}, before: op.options,
			after: func() *server.Options {
				op.claims.Revoke(first.public)
				op.store(op.claims)
				return &server.Options{
					AccountResolver: op.options.AccountResolver, SystemAccount: op.options.SystemAccount,
					TrustedOperators: op.options.TrustedOperators,
				}
			},
			files: func() { rewrite(t, creds, op.creds(second)) },
		}.try(t)
	})
	t.Run("certificates", func(t *testing.T) {
		t.Parallel()
		a, next := newAuthority(t), newAuthority(t)
		for _, by := range []*authority{a, next} {
			by.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		}
		renewal{
			args: []string{
				"--tlsca=" + a.file("ca.pem"), "--tlscert=" + a.file("client.pem"), "--tlskey=" + a.file("client.key"),
			},
			before: a.options(true),
			after:  func() *server.Options { return next.options(true) },
			files: func() {
				for _, name := range []string{"ca.pem", "client.pem", "client.key"} {
					text, err := os.ReadFile(next.file(name))
					if err != nil {
						t.Fatal(err)
					}
					rewrite(t, a.file(name), string(text))
				}
			},
		}.try(t)
	})
}
