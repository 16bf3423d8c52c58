package tests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A guarded is a server with a user for workers, whose rights can be changed while it runs, and one for callers.
type guarded struct {
	server *server.Server
	opts   *server.Options
}

// startGuardedServer starts it. The worker has the rights of a worker, changed by edit.
func startGuardedServer(t *testing.T, edit func(*server.Permissions)) *guarded {
	t.Helper()
	g := &guarded{opts: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	}}
	g.opts.Users = usersWith(edit)
	g.server = launch(t, g.opts.Clone())
	return g
}

func usersWith(edit func(*server.Permissions)) []*server.User {
	worker := permitted(rights.Worker)
	edit(worker)
	return []*server.User{
		{Username: "worker", Password: "p", Permissions: worker},
		{Username: "caller", Password: "p", Permissions: permitted(rights.Caller, rights.Operator)},
	}
}

// change gives the worker the rights of a worker, changed by edit, while it is connected. A server that reloads while
// somebody connects races with itself.
func (g *guarded) change(t *testing.T, edit func(*server.Permissions)) {
	t.Helper()
	before := uint64(0)
	wait.Until(t, "nobody connects", func() bool {
		time.Sleep(300 * time.Millisecond)
		v, err := g.server.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { before = v.TotalConnections }()
		return before == v.TotalConnections
	})
	g.opts.Users = usersWith(edit)
	if err := g.server.ReloadOptions(g.opts.Clone()); err != nil {
		t.Fatal(err)
	}
}

func allRights(*server.Permissions) {}

// lacking returns an edit that takes rights away.
func lacking(publish, subscribe []string) func(*server.Permissions) {
	return func(p *server.Permissions) {
		for _, cut := range []struct {
			from *server.SubjectPermission
			what []string
		}{{p.Publish, publish}, {p.Subscribe, subscribe}} {
			cut.from.Allow = slices.DeleteFunc(cut.from.Allow,
				func(right string) bool { return slices.Contains(cut.what, right) })
		}
	}
}

// answer is how a request ended: "ids", "nobody" if no worker is there, "silence", or the code of an error.
func answer(caller *nats.Conn, subject string) string {
	m, err := caller.Request(subject, nil, 3*time.Second)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return "nobody"
	case err != nil:
		return "silence"
	case m.Header.Get(subjects.HeaderErrorCode) != "":
		return m.Header.Get(subjects.HeaderErrorCode)
	}
	return "ids"
}

// refusedRights are rights that a worker needs to serve, and what must be said of a worker without them.
var refusedRights = map[string]struct {
	take      func(*server.Permissions)
	segment   []string // parts of the line of the mode; nil if it is ready
	snowflake []string
	asked     map[string]string // how requests end
	startOnly bool              // while it runs, the lack is seen only after a while
}{
	"segments": {
		take:    lacking(nil, []string{"id.segment.> natsid"}),
		segment: []string{"may not subscribe to id.segment.> natsid"},
		asked:   map[string]string{"id.segment.order": "nobody", "id.snowflake": "ids"},
	},
	"snowflakes": {
		take:      lacking(nil, []string{"id.snowflake natsid"}),
		snowflake: []string{"may not subscribe to id.snowflake natsid"},
		asked:     map[string]string{"id.segment.order": "ids", "id.snowflake": "nobody"},
	},
	"replies": {
		take:      lacking([]string{"_INBOX.>"}, nil),
		segment:   []string{"may not publish to _INBOX.>"},
		snowflake: []string{"may not publish to _INBOX.>"},
		asked:     map[string]string{"id.segment.order": "nobody", "id.snowflake": "nobody"},
	},
	"answers": {
		take:      lacking(nil, []string{"_INBOX.>"}),
		segment:   []string{"may not subscribe to _INBOX.>"},
		snowflake: []string{"may not subscribe to _INBOX.>"},
		asked:     map[string]string{"id.segment.order": "nobody"},
		startOnly: true,
	},
	"worker numbers, and answers about them": {
		take:      lacking([]string{"$KV.id_history.>"}, []string{"id.worker.*"}),
		snowflake: []string{"may not publish to $KV.id_history.>; subscribe to id.worker.*"},
		asked:     map[string]string{"id.segment.order": "ids", "id.snowflake": "nobody"},
	},
	"marks": {
		take:      lacking([]string{"$KV.id_segments.>"}, nil),
		segment:   []string{"may not publish to $KV.id_segments.>"},
		asked:     map[string]string{"id.segment.order": "nobody"},
		startOnly: true,
	},
}

// says reports whether /readyz says of a mode that it is ready, or not ready for a reason that holds all parts.
func says(text, mode string, parts []string) bool {
	for line := range strings.Lines(text) {
		if why, ok := strings.CutPrefix(line, mode+": "); ok {
			if len(parts) == 0 {
				return why == "ready\n"
			}
			return strings.HasPrefix(why, "not ready: ") &&
				!slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(why, part) })
		}
	}
	return false
}

func TestAWorkerWithoutARightIsNotReadyAndSaysWhich(t *testing.T) {
	t.Parallel()
	for name, right := range refusedRights {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGuardedServer(t, right.take)
			var announced atomic.Bool
			w := startAt(t, urlOf(g.server, "worker"), func(cfg *app.Config) {
				cfg.Ready = func(app.Where) { announced.Store(true) }
			})
			caller := natstest.Connect(t, urlOf(g.server, "caller"))
			expect := func(segment, snowflake []string, asked map[string]string) {
				t.Helper()
				for subject, want := range asked {
					wait.Until(t, "an answer on "+subject+" that is "+want,
						func() bool { return answer(caller, subject) == want })
				}
				wait.Until(t, "what /readyz must say", func() bool {
					text, ready := w.readyz()
					return says(text, "segment", segment) && says(text, "snowflake", snowflake) &&
						ready == (segment == nil && snowflake == nil)
				})
			}
			all := map[string]string{"id.segment.order": "ids", "id.snowflake": "ids", "id.snowflake.0": "ids"}
			expect(right.segment, right.snowflake, right.asked)
			if announced.Load() {
				t.Error("the worker has said that it is ready")
			}
			g.change(t, allRights)
			expect(nil, nil, all)
			wait.Until(t, "the ready line", announced.Load)
			if right.startOnly {
				return
			}
			g.change(t, right.take) // while the worker runs
			expect(right.segment, right.snowflake, right.asked)
			g.change(t, allRights)
			expect(nil, nil, all)
		})
	}
}

// The server says once, and to nobody's question, that it takes no more subscriptions of a connection.
func TestAWorkerWithoutItsSubscriptionsIsNotReadyAndSaysWhy(t *testing.T) {
	t.Parallel()
	const why = "NATS refuses subscriptions: raise max_subscriptions"
	for _, most := range []int{1, 6, 20} {
		url := natstest.StartWith(t, fmt.Sprintf("max_subscriptions: %d", most))
		http := freePort(t)
		launchProcess(t, "--nats", url, "--data", t.TempDir(), "--http", http)
		wait.Until(t, fmt.Sprintf("with %d subscriptions both modes say why", most), func() bool {
			code, page := get("http://" + http + "/readyz")
			if code == 200 {
				t.Fatalf("with %d subscriptions: ready", most)
			}
			return strings.Count(page, why) >= 2
		})
	}
}
