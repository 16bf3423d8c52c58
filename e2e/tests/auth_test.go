package tests

import (
	"context"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/natsid/natsid/internal/testkit/wait"
)

// file writes a file of a test and returns its name.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, text)
	return path
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// must returns what a library made.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A signer is a user with a key.
type signer struct{ seed, public string }

func newSigner(t *testing.T) signer {
	t.Helper()
	pair := must[nkeys.KeyPair](t)(nkeys.CreateUser())
	return signer{string(must[[]byte](t)(pair.Seed())), must[string](t)(pair.PublicKey())}
}

// An operator signs the JWTs of an account and its users.
type operator struct {
	t       *testing.T
	root    nkeys.KeyPair
	account nkeys.KeyPair
	claims  *jwt.AccountClaims
	options *server.Options // of a server that trusts it
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	pair, text := must[nkeys.KeyPair](t), must[string](t)
	o := &operator{t: t, root: pair(nkeys.CreateOperator()), account: pair(nkeys.CreateAccount())}
	o.claims = jwt.NewAccountClaims(text(o.account.PublicKey()))
	o.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1,
	}
	system := text(pair(nkeys.CreateAccount()).PublicKey())
	o.options = &server.Options{
		JetStream: true, AccountResolver: new(server.MemAccResolver), SystemAccount: system,
		TrustedOperators: []*jwt.OperatorClaims{jwt.NewOperatorClaims(text(o.root.PublicKey()))},
	}
	o.store(jwt.NewAccountClaims(system))
	o.store(o.claims)
	return o
}

// store signs what servers are to know of an account.
func (o *operator) store(c *jwt.AccountClaims) {
	o.t.Helper()
	if err := o.options.AccountResolver.Store(c.Subject, must[string](o.t)(c.Encode(o.root))); err != nil {
		o.t.Fatal(err)
	}
}

// user signs the JWT of a user.
func (o *operator) user(s signer) string {
	o.t.Helper()
	return must[string](o.t)(jwt.NewUserClaims(s.public).Encode(o.account))
}

// creds returns the text of a file of credentials.
func (o *operator) creds(s signer) string {
	o.t.Helper()
	return string(must[[]byte](o.t)(jwt.FormatUserConfig(o.user(s), []byte(s.seed))))
}

// servesWith runs a worker until the test ends, and waits for an ID through a command of the same settings.
func servesWith(t *testing.T, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if code, text := run(t, ctx, started(t, append(args, "--auto-create-tags")...)...); code != 0 {
			t.Errorf("natsid ended with %d: %s", code, text)
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(stop)
	wait.Until(t, "an ID", func() bool { return gets(t, args...) == "" })
}

// gets asks for an ID, and returns what was printed if there was none.
func gets(t *testing.T, args ...string) string {
	code, text := run(t, patient(t), append([]string{"get", "segment", "order"}, args...)...)
	if code == 0 {
		return ""
	}
	return text
}

// A door is a server, and ways through it.
type door struct {
	right [][]string
	wrong map[string][]string // what each says, by arguments; words are separated by " & "
}

func (d door) try(t *testing.T) {
	servesWith(t, d.right[0]...)
	for _, args := range d.right {
		text := ""
		for range 10 { // a busy machine outlasts the 2 s of the command
			if text = gets(t, args...); text == "" {
				break
			}
		}
		if text != "" {
			t.Errorf("natsid get %s: %s", strings.Join(args, " "), text)
		}
	}
	for words, args := range d.wrong {
		for _, args := range [][]string{started(t, args...), append([]string{"workers"}, args...)} {
			code, text := run(t, patient(t), args...)
			want := 1
			if strings.HasPrefix(words, "refuses this user") {
				want = 3
			}
			if code != want || strings.Contains(text, "secret") {
				t.Errorf("natsid %s ended with %d: %s", strings.Join(args, " "), code, text)
			}
			for word := range strings.SplitSeq("cannot join NATS & "+words, " & ") {
				if !strings.Contains(text, word) {
					t.Errorf("natsid %s does not say %q: %s", strings.Join(args, " "), word, text)
				}
			}
		}
	}
}

func TestEachWayToAuthenticate(t *testing.T) {
	t.Parallel()
	key, other := newSigner(t), newSigner(t)
	t.Run("user or nkey", func(t *testing.T) {
		t.Parallel()
		s := launch(t, &server.Options{
			JetStream: true,
			Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
				Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}},
			}}},
			Nkeys: []*server.NkeyUser{{Nkey: key.public}},
		})
		addr := s.Addr().String()
		at, inbox := "--nats=nats://"+addr, "--inbox-prefix=_INBOX_me"
		password := "--password-file=" + file(t, "password", "right\n")
		ctx := file(t, "prod.json", `{"url":"nats://`+addr+`","user":"me","password":"right","inbox_prefix":"mine"}`)
		door{
			right: [][]string{
				{at, "--user=me", password, inbox},
				{at, "--user=me", "--password=right", inbox},
				{"--server=nats://127.0.0.1:1,nats://me:right@" + addr, inbox},
				{"--context=" + ctx},
				{at, "--nkey=" + file(t, "user.nk", key.seed)},
				{"--context=" + ctx, "--nkey=" + file(t, "user.nk", key.seed)},
			},
			wrong: map[string][]string{
				"refuses this user & none is given":          {at},
				"refuses this user & --user":                 {at, "--user=me", "--password=secret"},
				"refuses this user & the user in --nats (":   {"--nats=nats://me:secret@" + addr},
				"refuses this user & the user in --server (": {"--server=nats://me:secret@" + addr},
				"refuses this user & nats://xxxxx@":          {"--nats=me:secret@" + addr},
				"refuses this user & user of context": {"--context=" + file(t, "x.json",
					`{"url":"`+addr+`","user":"me","password":"secret"}`)},
				"refuses this user & --nkey (":           {at, "--nkey=" + file(t, "other.nk", other.seed)},
				"--nkey cannot be used & begins with SU": {at, "--nkey=" + file(t, "bad.nk", "secret")},
				"--password-file cannot & is empty":      {at, "--user=me", "--password-file=" + file(t, "none", "\n")},
				"--password-file cannot & no such file":  {at, "--user=me", "--password-file=/nowhere"},
			},
		}.try(t)
	})
	t.Run("token", func(t *testing.T) {
		t.Parallel()
		s := launch(t, &server.Options{JetStream: true, Authorization: "right"})
		at, ca := "--nats=nats://"+s.Addr().String(), "--tlsca="+newAuthority(t).file("ca.pem")
		door{
			right: [][]string{
				{at, "--token-file=" + file(t, "token", "right\n")},
				{at, "--token=right"},
				{at, "--user=right"}, // as the nats command takes it
				{strings.Replace(at, "nats://", "nats://right@", 1)},
			},
			wrong: map[string][]string{
				"refuses this user & --token (":      {at, "--token=secret"},
				"refuses this user & --token-file (": {at, "--token-file=" + file(t, "token", "secret")},
				"offers no TLS":                      {at, "--token=right", ca},
			},
		}.try(t)
	})
	t.Run("JWT", func(t *testing.T) {
		t.Parallel()
		op := newOperator(t)
		s := launch(t, op.options)
		at, stranger := "--nats=nats://"+s.Addr().String(), newOperator(t)
		door{
			right: [][]string{
				{at, "--creds=" + file(t, "user.creds", op.creds(key))},
			},
			wrong: map[string][]string{
				"refuses this user & --creds (":         {at, "--creds=" + file(t, "x.creds", stranger.creds(key))},
				"--creds cannot be used & nsc generate": {at, "--creds=" + file(t, "y.creds", "secret")},
				"/nowhere.creds":                        {at, "--creds=/nowhere.creds"},
			},
		}.try(t)
	})
	t.Run("client certificate", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		a.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		s := a.launch(true, func(*server.Options) {})
		at, ca := "--nats=tls://"+s.Addr().String(), "--tlsca="+a.file("ca.pem")
		mine := []string{"--tlscert=" + a.file("client.pem"), "--tlskey=" + a.file("client.key")}
		door{
			right: [][]string{append(mine, at, ca)},
			wrong: map[string][]string{
				"--tlsca (":              append(mine, at),
				"--tlscert & --tlskey":   {at, ca},
				"--tlsca & PEM":          {at, "--tlsca=" + file(t, "no.pem", "damaged")},
				"localhost & --nats as ": {strings.Replace(at, "127.0.0.1", "localhost", 1), ca},
			},
		}.try(t)
	})
	t.Run("websocket", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		s := a.launch(false, func(o *server.Options) {
			o.Websocket = server.WebsocketOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT, TLSConfig: o.TLSConfig}
			o.Username, o.Password = "me", "right"
		})
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.WebsocketURL(), "wss://"))
		at, ca := "--nats=wss://127.0.0.1:"+port, "--tlsca="+a.file("ca.pem")
		door{
			right: [][]string{{at, ca, "--user=me", "--password=right"}},
			wrong: map[string][]string{
				"refuses this user: check --user": {at, ca, "--user=me", "--password=secret"},
				"--tlsca (":                       {at, "--user=me", "--password=right"},
			},
		}.try(t)
	})
}
