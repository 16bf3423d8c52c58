package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testbed"
)

type testServerCmd struct{}

func (*testServerCmd) help() help {
	return help{
		summary: "Serve IDs to the tests of a program, in any language.",
		detail: `It starts a NATS server and a worker on free ports of this machine, and prints one
line of JSON when they serve: the addresses, and the subject of orders. It ends when
its standard input is closed, when its parent ends, or with a signal. Its data is in
a temporary directory, in memory unless TMPDIR names another, and is gone then.

Orders are requests on that subject; the reply is ok, or an error:

  stall 2s              let requests for IDs wait
  refuse 503 for 1s     answer them with an error
  drop replies for 1s   answer them, but drop the answers
  resume                end the order above; without a time it lasts until then
  restart               stop the worker, and reply once it serves again
  skip 1000000          raise the next ID of each tag by that much

Examples:
  natsid test-server
  natsid test-server --layout js53
  nats --server "$URL" request natsid.test 'stall 2s'`,
	}
}

func (c *testServerCmd) Run(s *session) (err error) {
	cfg, err := c.worker(s)
	if err != nil {
		return err
	}
	s.drains(false)
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	endWith(ctx, end)
	const dirs = "natsid-test-"
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("TMPDIR"), "/dev/shm"), dirs) // in memory
	if err != nil {
		dir, err = os.MkdirTemp("", dirs)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bed, err := testbed.Start(testbed.Config{
		Dir: dir, Workers: 1, Namespace: cfg.Namespace, Websocket: true,
		Configure: func(_ int, worker *app.Config) {
			worker.HTTP, worker.Layout, worker.Version = "127.0.0.1:0", cfg.Layout, version()
			worker.Log = cfg.NewLog(s.stderr)
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	s.json = true
	err = s.print(testServerJSON{
		NATS: bed.URL, Websocket: bed.WebsocketURL(), HTTP: "http://" + bed.Where(0).HTTP, Control: testbed.Control,
		Namespace: string(cfg.Namespace), PID: os.Getpid(), Version: version(),
	}, nil)
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// worker returns the settings of the test server's worker. Settings of NATS in the environment are ignored, as they
// are meant for other commands.
func (*testServerCmd) worker(s *session) (cfg app.Config, err error) {
	for flag, given := range s.given {
		if given.From == app.FromFlag && flag != "config" && flag != "namespace" && !slices.Contains(ofLayout, flag) {
			return cfg, usage(fmt.Errorf("the test server has a NATS server of its own: leave out %s", given.Place))
		}
	}
	layout, err := s.layout()
	cfg = app.Default()
	cfg.Namespace, cfg.Layout, cfg.LogLevel = s.namespace(), layout, slog.LevelWarn
	return cfg, cmp.Or(err, usage(cfg.Namespace.Check()))
}

// testServerJSON is the line of output from which a test suite learns how to reach the server.
type testServerJSON struct {
	NATS      string `json:"nats"`      // URL
	Websocket string `json:"websocket"` // URL, without TLS
	HTTP      string `json:"http"`      // URL of health, metrics and the page
	Control   string `json:"control"`   // subject on which the test server takes orders
	Namespace string `json:"namespace"`
	PID       int    `json:"pid"`
	Version   string `json:"version"`
}

// endWith calls end once the process that started this one has ended, or has closed this one's standard input.
func endWith(ctx context.Context, end func()) {
	if in, err := os.Stdin.Stat(); err == nil && in.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end()
		}()
	}
	go func() {
		for parent := os.Getppid(); os.Getppid() == parent && ctx.Err() == nil; {
			time.Sleep(100 * time.Millisecond)
		}
		end()
	}()
}
