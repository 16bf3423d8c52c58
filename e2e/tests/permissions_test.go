package tests

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// rightsOf returns the rights of a role, in a deployment that change changes.
func rightsOf(role rights.Role, change ...func(*rights.Deployment)) rights.Rights {
	d := rights.Deployment{Namespace: subjects.DefaultNamespace, MakesBuckets: true}
	for _, c := range change {
		c(&d)
	}
	return rights.Of(role, d)
}

// allow returns permissions that are those rights.
func allow(all ...rights.Rights) *server.Permissions {
	p := &server.Permissions{Publish: new(server.SubjectPermission), Subscribe: new(server.SubjectPermission)}
	for _, r := range all {
		p.Publish.Allow = append(p.Publish.Allow, rights.Texts(r.Publish)...)
		p.Subscribe.Allow = append(p.Subscribe.Allow, rights.Texts(r.Subscribe)...)
	}
	return p
}

// permitted returns the permissions of a user in those roles.
func permitted(roles ...rights.Role) *server.Permissions {
	var all []rights.Rights
	for _, role := range roles {
		all = append(all, rightsOf(role))
	}
	return allow(all...)
}

// violations is a log of a server of which only violations of permissions are kept.
type violations struct {
	mu  sync.Mutex
	all []string
}

func (v *violations) Errorf(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); strings.Contains(line, "Violation") {
		v.mu.Lock()
		v.all = append(v.all, line)
		v.mu.Unlock()
	}
}

func (v *violations) report(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, line := range v.all {
		t.Error(line)
	}
}

func (*violations) Noticef(string, ...any) {}
func (*violations) Warnf(string, ...any)   {}
func (*violations) Fatalf(string, ...any)  {}
func (*violations) Debugf(string, ...any)  {}
func (*violations) Tracef(string, ...any)  {}

// printed returns what `natsid permissions` prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	code, text := run(t, patient(t), append([]string{"permissions"}, args...)...)
	if code != 0 {
		t.Fatalf("natsid permissions %v ended with %d: %s", args, code, text)
	}
	return text
}

// urlOf returns where a user connects to a server; the password is p.
func urlOf(s *server.Server, user string) string { return "nats://" + user + ":p@" + s.Addr().String() }

const shopInbox = "_INBOX_shop"

// operate runs each command of an operator, as often as is needed on a busy machine.
func operate(t *testing.T, url string, flags ...string) {
	t.Helper()
	for _, command := range []string{
		"tag create seat", "tag update seat --step 20", "tag list", "tag stats",
		"throttle 1000 -y", "throttle off -y", "tag update seat* --rate 5 -y",
		"tag delete seat -y", "workers", "status",
	} {
		wait.Until(t, command, func() bool {
			code, text := run(t, patient(t), append(append(strings.Fields(command), "--nats="+url), flags...)...)
			if strings.Contains(text, "may not") {
				t.Fatalf("%s: %s", command, text)
			}
			return code == 0 || strings.Contains(text, "exists")
		})
	}
	nc := natstest.Connect(t, url)
	if _, err := nc.SubscribeSync(wire.AlarmSubjects(subjects.DefaultNamespace)); err != nil {
		t.Error(err)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Error(err)
	}
}

// serverOf starts a server whose users have those permissions, nil for all, and the password p.
func serverOf(t *testing.T, users map[string]*server.Permissions) *server.Server {
	t.Helper()
	opts := &server.Options{JetStream: true}
	for name, allowed := range users {
		opts.Users = append(opts.Users, &server.User{Username: name, Password: "p", Permissions: allowed})
	}
	return launch(t, opts)
}

func TestOnlyARepairingOperatorMayResumeAndTheOtherReadsWhichFlagAllowsIt(t *testing.T) {
	t.Parallel()
	seen := new(violations)
	s := serverOf(t, map[string]*server.Permissions{
		"worker": permitted(rights.Worker), "admin": nil, "operator": permitted(rights.Operator),
		"repairer": allow(rightsOf(rights.Operator, func(d *rights.Deployment) { d.Repairs = true })),
	})
	_, stop := startReady(t, urlOf(s, "worker"))
	code, text := run(t, patient(t), "resume", "--dry-run", "--restored", "--nats="+urlOf(s, "operator"))
	if code != 3 || !strings.Contains(text, "operator --repairs") {
		t.Errorf("resume --dry-run ended with %d: %s", code, text)
	}
	s.SetLoggerV2(seen, false, false, false)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// A bucket that was made again has no identity, which the resume writes.
	js := natstest.JetStream(t, urlOf(s, "admin"))
	if err := js.DeleteKeyValue(t.Context(), "id_segments"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "id_segments"}); err != nil {
		t.Fatal(err)
	}
	const resume = "resume --yes --bump 1000"
	code, text = run(t, patient(t), append(strings.Fields(resume), "--nats="+urlOf(s, "repairer"))...)
	if code != 0 {
		t.Errorf("%s ended with %d: %s", resume, code, text)
	}
	seen.report(t)
}
