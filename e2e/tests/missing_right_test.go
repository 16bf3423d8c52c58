package tests

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A lack is a worker, alone in an account, that has all rights but one.
type lack struct {
	right  rights.Right // the zero value: it has all
	worker *server.User
	log    natstest.Buffer
	stop   func() error
}

// names reports whether the log names the right.
func (l *lack) names() bool {
	literal, _, _ := strings.Cut(strings.TrimSuffix(l.right.Subject, ">"), "*")
	return strings.Contains(l.log.String(), literal)
}

// lacksOfAWorker returns one for each right of a worker, and one with all of them. What only another account needs is
// tested with those.
func lacksOfAWorker() (all []*lack) {
	add := func(r rights.Right, p *server.Permissions) {
		account := server.NewAccount(fmt.Sprint("A", len(all))) // a token of a subject
		user := &server.User{Username: "worker" + account.Name, Password: "p", Permissions: p, Account: account}
		all = append(all, &lack{right: r, worker: user})
	}
	of := rightsOf(rights.Worker)
	for i, r := range of.Publish {
		if r.Subject != "_R_.>" {
			add(r, allow(rights.Rights{
				Publish: slices.Delete(slices.Clone(of.Publish), i, i+1), Subscribe: of.Subscribe,
			}))
		}
	}
	for i, r := range of.Subscribe {
		add(r, allow(rights.Rights{
			Publish: of.Publish, Subscribe: slices.Delete(slices.Clone(of.Subscribe), i, i+1),
		}))
	}
	add(rights.Right{}, allow(of))
	return all
}

func TestAWorkerNamesEachRightThatIsTakenAway(t *testing.T) {
	t.Parallel()
	seen := new(violations)
	lacks, opts := lacksOfAWorker(), &server.Options{JetStream: true}
	for _, l := range lacks {
		opts.Users, opts.Accounts = append(opts.Users, l.worker), append(opts.Accounts, l.worker.Account)
	}
	s := launch(t, opts)
	s.SetLoggerV2(seen, false, false, false)
	for some := range slices.Chunk(lacks, 16) { // all together would starve the tests beside them
		for _, l := range some {
			l.start(t, s)
		}
		waitForNames(t, some)
		var stops sync.WaitGroup
		for _, l := range some {
			stops.Go(func() {
				if err := l.stop(); err != nil {
					t.Errorf("without %s: %v", l.right, err)
				}
			})
		}
		stops.Wait()
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, line := range seen.all {
		if strings.Contains(line, lacks[len(lacks)-1].worker.Username+`"`) {
			t.Errorf("under all rights: %s", line)
		}
	}
}

// start starts the worker in its account.
func (l *lack) start(t *testing.T, s *server.Server) {
	t.Helper()
	account, err := s.LookupAccount(l.worker.Account.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := account.EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	cfg := configOn(t, "nats://"+l.worker.Username+":p@"+s.Addr().String(), t.TempDir())
	cfg.TagPoll = time.Second
	cfg.Log = slog.New(slog.NewTextHandler(&l.log, nil))
	l.stop = startWith(t, cfg)
}

// waitForNames waits until each log names the right that is missing.
func waitForNames(t *testing.T, lacks []*lack) {
	t.Helper()
	silent := slices.DeleteFunc(slices.Clone(lacks), func(l *lack) bool { return l.right == rights.Right{} })
	for deadline := time.Now().Add(2 * patience); len(silent) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, l := range silent {
				t.Errorf("the log does not name %s", l.right)
			}
			return
		}
		silent = slices.DeleteFunc(silent, (*lack).names)
	}
}
