package cli

import (
	"context"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/natsid/natsid/internal/app"
)

// serveCmd runs a worker. Its flags come from [app.Settings].
type serveCmd struct{}

func (*serveCmd) help() help {
	return help{
		summary: "Serve IDs; the default command.",
		detail: `Each flag has an environment variable, shown as $NAME; the flag takes precedence.

Examples:
  natsid                                        # a whole service on this machine
  natsid --listen 127.0.0.1:4333 --http ""      # the same beside another NATS server
  natsid --nats nats://n1:4222,nats://n2:4222   # a worker on a NATS with JetStream
  natsid --nats nats://n1:4222 --mysql 'leaf:password@tcp(db:3306)/leaf'
  natsid --nats nats://n1:4222 --layout article --site 2
  natsid --nats nats://n1:4222 --auto-create-tags='tmp.*'
  NATS_URL=nats://n1:4222 natsid --data /var/lib/natsid`,
	}
}

func (c *serveCmd) Run(s *session) error {
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	s.drains(cfg.ListenConf != "")
	cfg.Version, cfg.Log = version(), cfg.NewLog(s.stderr)
	for _, sentence := range s.said {
		cfg.Log.Info(sentence)
	}
	defer context.AfterFunc(s.ctx, func() { notify("STOPPING=1") })()
	cfg.Ready = func(w app.Where) {
		// A failed print must not stop the service.
		_ = s.print(w, func(out *sheet) { ready(out, cfg, w) })
		notify("READY=1")
	}
	spare := make([]byte, spareHeap)
	defer runtime.KeepAlive(spare)
	return app.Run(s.ctx, cfg)
}

// drains handles signals that would end a serving command while requests are open. SIGPIPE, sent when the reader of
// its log has ended, only makes writes fail. SIGHUP, sent when its terminal is closed, stops the command in order,
// unless nohup ignores it, or isRead is set: SIGHUP then means to read the configuration again.
func (s *session) drains(isRead bool) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // not Ignore, which programs that this one starts inherit
	if !isRead && !signal.Ignored(syscall.SIGHUP) {
		s.ctx, _ = signal.NotifyContext(s.ctx, syscall.SIGHUP)
	}
}

// notify tells systemd the worker's state, as sd_notify(3) does, over the socket in $NOTIFY_SOCKET, if there is one.
func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if conn, err := net.Dial("unixgram", socket); err == nil { // a failed report must not stop the service
		defer conn.Close()
		_, _ = io.WriteString(conn, state)
	}
}

// spareHeap is the size of memory that is allocated and never touched. It takes no RAM but counts as heap, so garbage
// is collected less often: with the 1 MB that natsid uses, it would be several times a second, a tenth of the CPU time.
const spareHeap = 16 << 20

// ready prints the addresses of the service, and a command to try it.
func ready(out *sheet, cfg app.Config, w app.Where) {
	nats := cfg.Given("nats")
	page, how, server := "", "joined", ""
	if w.HTTP != "" {
		page = ", http://" + w.HTTP + "/readyz"
	}
	switch {
	case w.Embedded:
		how = "embedded server, data in " + cfg.Data
	case nats.From == app.FromEnv:
		how = "joined, from " + nats.Place + " in the environment"
	case nats.From == app.FromFile, nats.From == app.FromContext:
		how = "joined, from " + nats.Place
	}
	if w.Embedded && w.URL != defaultURL {
		server = " --server " + w.URL
	}
	out.line("natsid is ready on %s, worker number %d%s", w.URL, w.Number, page)
	out.line("%s; try: nats%s request %s ''", how, server, cfg.Namespace.Segment("order"))
}
