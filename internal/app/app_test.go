package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

func TestMain(m *testing.M) {
	// A nats-server that is shut down while it creates a stream leaves these behind.
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server+"/ats.Register.func1"))
}

// settings returns the settings of a whole service on a free port, with a new
// directory.
func settings(t *testing.T) app.Config {
	cfg := app.Default()
	cfg.Listen, cfg.Data, cfg.HTTP = "127.0.0.1:0", filepath.Join(t.TempDir(), "data"), ""
	cfg.AutoCreateTags = true
	cfg.MaxClockSkew = time.Millisecond // so that a number never used before is ready at once
	return cfg
}

// joined returns the settings of a worker that joins a NATS.
func joined(t *testing.T, url string) app.Config {
	cfg := settings(t)
	cfg.NATS = url
	return cfg
}

// An instance is a running natsid.
type instance struct {
	t     *testing.T
	log   *natstest.Buffer
	ready chan app.Where
	done  chan struct{}
	err   error // what Run returned, once done is closed
	stop  context.CancelFunc
}

// launch starts an instance. It is stopped when the test ends.
func launch(t *testing.T, cfg app.Config) *instance {
	t.Helper()
	i := &instance{t: t, log: new(natstest.Buffer), ready: make(chan app.Where, 1), done: make(chan struct{})}
	cfg.Log = slog.New(slog.NewTextHandler(i.log, nil))
	cfg.Ready = func(w app.Where) { i.ready <- w }
	ctx, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	go func() {
		defer close(i.done)
		i.err = app.Run(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		<-i.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Data, i.log)
		}
	})
	return i
}

// where waits until the instance is ready.
func (i *instance) where() app.Where {
	i.t.Helper()
	select {
	case w := <-i.ready:
		return w
	case <-i.done:
		i.t.Fatalf("stopped: %v", i.err)
	case <-time.After(20 * time.Second):
		i.t.Fatal("not ready after 20 s")
	}
	panic("not reached")
}

// end waits until the instance has stopped and returns what Run returned.
func (i *instance) end() error {
	i.t.Helper()
	select {
	case <-i.done:
	case <-time.After(20 * time.Second):
		i.t.Fatal("still running after 20 s")
	}
	return i.err
}

// logs waits until one line of the log has all of the words.
func (i *instance) logs(words ...string) {
	i.t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(i.log.String()) {
			if containsAll(line, words...) {
				return
			}
		}
	}
	i.t.Errorf("no line of the log has %q", words)
}

func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// connect connects to NATS until the test ends.
func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// startServer starts a nats-server that is stopped when the test ends.
func startServer(t *testing.T, listen string) *natsembed.Server {
	t.Helper()
	srv, err := natsembed.Start(natsembed.Config{Listen: listen, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	return srv
}

// freeAddress returns an address that is not in use.
func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// ids asks for one ID of each mode.
func ids(t *testing.T, c *client.Client) (segment, flake int64) {
	t.Helper()
	segment, err := c.Segment(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	if flake, err = c.Snowflake(t.Context()); err != nil {
		t.Fatal(err)
	}
	return segment, flake
}

func TestAWholeServiceNeedsNothingButADirectory(t *testing.T) {
	i := launch(t, settings(t))
	w := i.where()
	if !w.Embedded || w.HTTP != "" || w.Instance == "" {
		t.Errorf("it reports %+v", w)
	}
	ids(t, client.New(connect(t, w.URL), "id"))
	i.stop()
	if err := i.end(); err != nil {
		t.Errorf("a clean stop: %v", err)
	}
}

func TestARestartContinuesAboveAllIDsUnderTheSameNumber(t *testing.T) {
	cfg := settings(t)
	var segment, flake int64
	number := -1
	for life := range 4 {
		i := launch(t, cfg)
		w := i.where()
		if number >= 0 && w.Number != number {
			t.Errorf("life %d has number %d, before it was %d", life, w.Number, number)
		}
		number = w.Number
		c := client.New(connect(t, w.URL), "id")
		for range 50 {
			s, f := ids(t, c)
			if s <= segment || f <= flake {
				t.Fatalf("life %d: %d after %d, %d after %d", life, s, segment, f, flake)
			}
			segment, flake = s, f
		}
		i.stop()
		if err := i.end(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecondInstanceOnOneDataDirectoryIsRefused(t *testing.T) {
	cfg := settings(t)
	first := launch(t, cfg)
	w := first.where()
	other := cfg
	other.NATS = w.URL // which does not even need the store
	for _, second := range []app.Config{cfg, other} {
		err := launch(t, second).end()
		if !errors.Is(err, app.ErrDataInUse) || !containsAll(err.Error(), cfg.Data, "--data") {
			t.Errorf("%v, want ErrDataInUse that names %s and --data", err, cfg.Data)
		}
	}
	ids(t, client.New(connect(t, w.URL), "id")) // the first is unaffected
}

func TestAPortInUseNamesTheTwoRemedies(t *testing.T) {
	addr := startServer(t, "127.0.0.1:0").Addr().String()
	cfg := settings(t)
	cfg.Listen = addr
	err := launch(t, cfg).end()
	if !errors.Is(err, app.ErrListenTaken) || !containsAll(err.Error(), addr, "--nats nats://"+addr, "--listen") {
		t.Errorf("%v, want ErrListenTaken that names --nats and --listen", err)
	}
	// Nothing is left behind that prevents the next start.
	cfg.Listen = "127.0.0.1:0"
	launch(t, cfg).where()
}

func TestTheStartWaitsForNATS(t *testing.T) {
	addr := freeAddress(t)
	i := launch(t, joined(t, "nats://me:secret@"+addr))
	i.logs("does not answer yet", "trying again", addr)
	startServer(t, addr)
	w := i.where()
	if w.Embedded || !strings.Contains(w.URL, addr) {
		t.Errorf("%+v", w)
	}
	ids(t, client.New(connect(t, "nats://"+addr), "id"))
	i.stop() // before its server
	if err := i.end(); err != nil {
		t.Error(err)
	}
	if text := i.log.String() + fmt.Sprint(w); strings.Contains(text, "secret") {
		t.Errorf("the password is shown: %s", text)
	}
}

func TestAStopEndsTheWaitForNATS(t *testing.T) {
	i := launch(t, joined(t, "nats://"+freeAddress(t)))
	i.logs("trying again")
	i.stop()
	if err := i.end(); err != nil {
		t.Errorf("stopped while it waited: %v", err)
	}
}

func TestAnErrorThatWaitingCannotFixEndsTheStart(t *testing.T) {
	srv := startServer(t, "127.0.0.1:0")
	requirePassword(t, srv, "me", "right")
	addr := srv.Addr().String()
	for law, edit := range map[string]func(*app.Config){
		"a wrong password":                   func(cfg *app.Config) { cfg.NATS = "nats://me:wrong-secret@" + addr },
		"no password":                        func(cfg *app.Config) { cfg.NATS = "nats://" + addr },
		"no such file of credentials":        func(cfg *app.Config) { cfg.NATSCreds = "nowhere.creds" },
		"a malformed URL":                    func(cfg *app.Config) { cfg.NATS = "nats://127.0.0.1:port" },
		"a password that breaks the URL":     func(cfg *app.Config) { cfg.NATS = "nats://me:wrong-secret%@" + addr },
		"a password with a slash in the URL": func(cfg *app.Config) { cfg.NATS = "nats://me:wrong-secret/@" + addr },
	} {
		t.Run(law, func(t *testing.T) {
			cfg := joined(t, "nats://me:right@"+addr)
			edit(&cfg)
			i := launch(t, cfg)
			err := i.end()
			if err == nil || !strings.Contains(err.Error(), "cannot join NATS") {
				t.Errorf("%v", err)
			}
			if text := fmt.Sprint(err) + i.log.String(); strings.Contains(text, "secret") {
				t.Errorf("the password is shown: %s", text)
			}
		})
	}
	launch(t, joined(t, "nats://me:right@"+addr)).where()
}

// requirePassword makes a running server require a user and a password.
func requirePassword(t *testing.T, srv *natsembed.Server, user, password string) {
	t.Helper()
	opts := argument(srv.ReloadOptions)
	js := srv.JetStreamConfig()
	opts.ServerName, opts.Host, opts.Port, opts.NoSigs = srv.Name(), "127.0.0.1", -1, true
	opts.JetStream, opts.StoreDir, opts.SyncAlways = true, filepath.Dir(js.StoreDir), true
	opts.Username, opts.Password = user, password
	if err := srv.ReloadOptions(opts); err != nil {
		t.Fatal(err)
	}
}

// argument returns a zero value to call f with: this package may not import
// nats-server's types.
func argument[T any](func(*T) error) *T { return new(T) }

func TestAnotherEpochOnTheSameDataIsRefused(t *testing.T) {
	cfg := settings(t)
	first := launch(t, cfg)
	first.where()
	first.stop()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Layout.Epoch += 1000
	err := launch(t, other).end()
	epochs := []string{fmt.Sprint(cfg.Layout.Epoch), fmt.Sprint(other.Layout.Epoch)}
	if !errors.Is(err, workerid.ErrDeployment) || !containsAll(err.Error(), epochs...) {
		t.Errorf("%v, want ErrDeployment with both epochs", err)
	}
	launch(t, cfg).where()
}

func TestWorkersOfOneNameGetDifferentNumbers(t *testing.T) {
	url := startServer(t, "127.0.0.1:0").ClientURL()
	numbers := map[int]bool{}
	for range 3 {
		cfg := joined(t, url)
		cfg.Name = "twin"
		w := launch(t, cfg).where()
		if numbers[w.Number] || w.Instance != "twin" {
			t.Errorf("%+v: another worker has the number", w)
		}
		numbers[w.Number] = true
	}
}

func TestTagsAreCreatedOnFirstUseOnlyIfSet(t *testing.T) {
	url := startServer(t, "127.0.0.1:0").ClientURL()
	for ns, auto := range map[subjects.Namespace]bool{"yes": true, "no": false} {
		cfg := joined(t, url)
		cfg.Namespace, cfg.AutoCreateTags = ns, auto
		launch(t, cfg).where()
		_, err := client.New(connect(t, url), ns).Segment(t.Context(), "order")
		e, refused := errors.AsType[*subjects.Error](err)
		if auto != (err == nil) || !auto && (!refused || e.Code != subjects.NotFound) {
			t.Errorf("auto-create %v: %v", auto, err)
		}
	}
}

// unused returns how many IDs of a tag are loaded but not issued after 150
// requests for 900, one right after the other.
func unused(t *testing.T, cfg app.Config) int64 {
	t.Helper()
	launch(t, cfg).where()
	c := client.New(connect(t, cfg.NATS), cfg.Namespace)
	for range 150 {
		if _, err := c.SegmentN(t.Context(), "order", 900); err != nil {
			t.Fatal(err)
		}
	}
	tags, err := c.ListTags(t.Context(), subjects.TagList{})
	if err != nil || len(tags) != 1 {
		t.Fatalf("%v, %v", tags, err)
	}
	return int64(tags[0].MaxID) - 1 - 150*900
}

func TestTheStepGrowsUpToItsMaximum(t *testing.T) {
	url := startServer(t, "127.0.0.1:0").ClientURL()
	cfg := joined(t, url)
	cfg.AutoCreateTags, cfg.Namespace = true, "free"
	if n := unused(t, cfg); n < 30_000 {
		t.Errorf("with the default maximum %d IDs are loaded ahead of 135,000 issued at once", n)
	}
	cfg = joined(t, url)
	cfg.AutoCreateTags, cfg.Namespace, cfg.MaxStep = true, "bound", 1000
	if n := unused(t, cfg); n > 12_000 {
		t.Errorf("with --max-step 1000 %d IDs are loaded ahead", n)
	}
}

func TestHealthReadinessAndMetricsAreServed(t *testing.T) {
	cfg := settings(t)
	cfg.HTTP = "127.0.0.1:0"
	w := launch(t, cfg).where()
	ids(t, client.New(connect(t, w.URL), "id"))
	for path, want := range map[string]string{
		"/healthz": "ok\n",
		"/readyz":  "segment: ready\nsnowflake: ready\n",
		"/metrics": fmt.Sprintf("natsid_worker_number %d\n", w.Number),
	} {
		if code, body := get(t, "http://"+w.HTTP+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestIDsAreServedThoughTheHTTPPortIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t)
	cfg.HTTP = l.Addr().String()
	i := launch(t, cfg)
	w := i.where()
	i.logs("WARN", "--http", cfg.HTTP)
	if w.HTTP != "" {
		t.Errorf("it reports HTTP on %s", w.HTTP)
	}
	ids(t, client.New(connect(t, w.URL), "id"))
}

func TestAStreamThatWouldAnswerRequestsIsLogged(t *testing.T) {
	url := startServer(t, "127.0.0.1:0").ClientURL()
	js, err := jetstream.New(connect(t, url))
	if err != nil {
		t.Fatal(err)
	}
	for n, subject := range []string{
		">", "segment.order", "segment.*", "snowflake", "snowflake.7", "snowflake.>",
		"tag.create", "tag.list", "worker.*",
	} {
		t.Run(subject, func(t *testing.T) {
			cfg := joined(t, url)
			cfg.Namespace = subjects.Namespace(fmt.Sprintf("ns%d", n))
			name := fmt.Sprintf("STREAM%d", n)
			stream := jetstream.StreamConfig{Name: name, Subjects: []string{string(cfg.Namespace) + "." + subject}}
			if _, err := js.CreateStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			i := launch(t, cfg)
			i.logs("worker number") // acquired or not: all warnings are logged by then
			if !containsAll(i.log.String(), "JetStream stream", "stream="+name) {
				t.Error("no warning")
			}
			i.stop()
			if err := i.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnExistingBucketThatDiffersIsUsedAndLogged(t *testing.T) {
	url := startServer(t, "127.0.0.1:0").ClientURL()
	first := launch(t, joined(t, url))
	first.where()
	if strings.Contains(first.log.String(), "used as it is") {
		t.Error("new buckets are logged as different")
	}
	cfg := joined(t, url)
	cfg.LeaseTTL = time.Minute
	second := launch(t, cfg)
	second.where()
	second.logs("used as it is", "30s")
}

func TestABucketWithATTLThatMustKeepItsValuesIsRefused(t *testing.T) {
	for _, bucket := range []string{"id_segments", "id_history"} {
		t.Run(bucket, func(t *testing.T) {
			// A server each: one that has just deleted its last stream cannot create
			// the next for a moment. natsid tries again; this test does not.
			url := startServer(t, "127.0.0.1:0").ClientURL()
			js, err := jetstream.New(connect(t, url))
			if err != nil {
				t.Fatal(err)
			}
			forgets := jetstream.KeyValueConfig{Bucket: bucket, TTL: time.Hour}
			if _, err := js.CreateKeyValue(t.Context(), forgets); err != nil {
				t.Fatal(err)
			}
			err = launch(t, joined(t, url)).end()
			if !errors.Is(err, buckets.ErrForgets) || !containsAll(err.Error(), bucket, "1h0m0s") {
				t.Errorf("%v, want ErrForgets", err)
			}
			if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
			launch(t, joined(t, url)).where()
		})
	}
}

func TestAStopBeforeTheStartIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := settings(t)
	if err := app.Run(ctx, cfg); err != nil {
		t.Error(err)
	}
	launch(t, cfg).where()
}

func TestADataDirectoryThatCannotBeCreatedIsNamed(t *testing.T) {
	cfg := settings(t)
	cfg.Data = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(cfg.Data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := app.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), cfg.Data) {
		t.Errorf("%v, want an error that names %s", err, cfg.Data)
	}
}
