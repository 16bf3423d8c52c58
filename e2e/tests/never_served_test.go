package tests

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A worker whose user lacks a right, as after an upgrade before its rights, must not take requests that it cannot
// serve while another worker can.
func TestAWorkerThatLacksARightTakesNoRequestsThatItCannotServe(t *testing.T) {
	t.Parallel()
	all, users := lacksOfAWorker()
	opts := &server.Options{JetStream: true}
	var lacks []*lack
	for i, l := range all {
		isAboutLoads := strings.Contains(l.right.Subject, "id_segments") || l.right.Subject == "_INBOX.>"
		if isAboutLoads { // the others took none either, when all were tried
			l.worker, l.user = users[2*i], users[2*i+1]
			opts.Users, lacks = append(opts.Users, l.worker, l.user), append(lacks, l)
			opts.Accounts = append(opts.Accounts, l.worker.Account)
		}
	}
	s := launch(t, opts)
	for _, l := range lacks {
		t.Run(l.right.String(), func(t *testing.T) {
			t.Parallel()
			l.takesNone(t, s)
		})
	}
}

// takesNone starts a worker with all rights, and then the one that lacks a right.
func (l *lack) takesNone(t *testing.T, s *server.Server) {
	account, err := s.LookupAccount(l.worker.Account.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := account.EnableJetStream(nil, nil); err != nil {
		t.Fatal(err)
	}
	good := configOn(t, "nats://"+l.user.Username+":p@"+s.Addr().String(), t.TempDir())
	startWith(t, good)
	waitFor(t, "the first worker is ready", ok("http://"+good.HTTP+"/readyz"))
	caller := connectTo(t, s.ClientURL(), nats.UserInfo(l.user.Username, "p"))
	subjects := []string{"id.segment.order", "id.snowflake", "id.segment.strict"}
	if _, err := caller.Request("id.tag.create", []byte(`{"tag":"strict","order":"strict"}`), patience); err != nil {
		t.Fatal(err)
	}
	bad := configOn(t, "nats://"+l.worker.Username+":p@"+s.Addr().String(), t.TempDir())
	var log natstest.Buffer
	bad.Log = slog.New(slog.NewTextHandler(&log, nil))
	startWith(t, bad)
	failed := make(map[string]int)
	asked := 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); asked++ {
		m, err := caller.Request(subjects[asked%3], nil, patience)
		switch {
		case err != nil:
			failed[subjects[asked%3]+" "+err.Error()]++
		case len(m.Data) == 0:
			failed[fmt.Sprint(subjects[asked%3], " ", m.Header)]++
		}
		time.Sleep(3 * time.Millisecond)
	}
	if len(failed) > 0 {
		t.Errorf("without %s, of %d requests failed: %v; the log of the worker:\n%s", l.right, asked, failed, &log)
	}
}
