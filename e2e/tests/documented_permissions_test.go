package tests

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/oneregistry/natsbus"
	"github.com/natsid/natsid/subjects"
)

// documented returns the permissions that docs/operations.md gives to users, as one line of its table or several.
func documented(t *testing.T, users ...string) *server.Permissions {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	allowed := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
	for _, user := range users {
		row := regexp.MustCompile(`(?m)^\| ` + user + ` \| (.*) \|(.*)\|$`).FindStringSubmatch(string(page))
		if row == nil {
			t.Fatalf("docs/operations.md has no permissions of a %s", user)
		}
		allowed.Publish.Allow = append(allowed.Publish.Allow, subjectsIn(row[1])...)
		allowed.Subscribe.Allow = append(allowed.Subscribe.Allow, subjectsIn(row[2])...)
	}
	return allowed
}

// subjectsIn returns the subjects in a cell; B stands for each bucket.
func subjectsIn(cell string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]*[.][^`]*)`").FindAllStringSubmatch(cell, -1) {
		for _, bucket := range []string{"segments", "history", "workers", "settings"} {
			all = append(all, strings.ReplaceAll(m[1], "id_B", "id_"+bucket))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
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

// startWithUsers starts a server with users who have the documented permissions, and an admin who may do everything. It
// returns where each of them connects.
func startWithUsers(t *testing.T, log server.Logger) (urlOf func(user string) string) {
	t.Helper()
	users := map[string]*server.Permissions{
		"worker":   documented(t, "worker", "worker that creates buckets"),
		"upgraded": documented(t, "worker", "worker that creates buckets", "worker that protects older buckets"),
		"caller":   documented(t, "caller"), "operator": documented(t, "operator"), "admin": nil,
	}
	for _, missing := range missingRights {
		users[nameWithout(missing)] = without(missing, documented(t, "worker", "worker that creates buckets"))
	}
	opts := &server.Options{JetStream: true}
	for name, allowed := range users {
		opts.Users = append(opts.Users, &server.User{Username: name, Password: "p", Permissions: allowed})
	}
	s := launch(t, opts)
	s.SetLoggerV2(log, false, false, false)
	return func(user string) string { return "nats://" + user + ":p@" + s.Addr().String() }
}

func connectTo(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	seen := new(violations)
	urlOf := startWithUsers(t, seen)
	announced, err := connectTo(t, urlOf("admin")).SubscribeSync(subjects.DefaultNamespace.RegistryAnnounce())
	if err != nil {
		t.Fatal(err)
	}
	var stops []func() error
	for range 2 {
		monitor, stop := startOn(t, urlOf("worker"), t.TempDir())
		waitFor(t, "a worker is ready", ok(monitor+"/readyz"))
		stops = append(stops, stop)
	}
	useAll(t, connectTo(t, urlOf("caller")), connectTo(t, urlOf("operator")))
	if _, err := announced.NextMsg(patience); err != nil {
		t.Errorf("no registry was announced: %v", err)
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	seen.report(t)
}

func TestTheDocumentedPermissionsAreEnoughToProtectOlderBuckets(t *testing.T) {
	t.Parallel()
	seen := new(violations)
	urlOf := startWithUsers(t, seen)
	js, err := jetstream.New(connectTo(t, urlOf("admin")))
	if err != nil {
		t.Fatal(err)
	}
	older := []string{"id_segments", "id_history"}
	for _, bucket := range older {
		if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
			t.Fatal(err)
		}
	}
	monitor, stop := startOn(t, urlOf("upgraded"), t.TempDir())
	waitFor(t, "the worker is ready", ok(monitor+"/readyz"))
	for _, bucket := range older {
		waitFor(t, bucket+" refuses purges", func() bool {
			stream, err := js.Stream(t.Context(), "KV_"+bucket)
			return err == nil && stream.CachedInfo().Config.DenyPurge
		})
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	seen.report(t)
}

// useAll makes each kind of request once, as a caller and as an operator.
func useAll(t *testing.T, caller, operator *nats.Conn) {
	t.Helper()
	ns, ctx := subjects.DefaultNamespace, patient(t)
	ids, tags := client.New(caller, client.Namespace(ns)), client.New(operator, client.Namespace(ns))
	step := int64(20)
	for what, do := range map[string]func() error{
		"segment":   func() error { _, err := ids.Segment("order").Next(ctx); return err },
		"snowflake": func() error { _, err := ids.Snowflake().Next(ctx); return err },
		"tag": func() error {
			if _, err := tags.CreateTag(ctx, subjects.TagCreate{Tag: "new"}); err != nil {
				return err
			}
			if _, err := tags.UpdateTag(ctx, subjects.TagUpdate{Tag: "new", Step: &step}); err != nil {
				return err
			}
			if _, err := tags.ListTags(ctx, subjects.TagList{}); err != nil {
				return err
			}
			_, err := tags.DeleteTag(ctx, "new")
			return err
		},
		"raise":    func() error { _, err := tags.RaiseTags(ctx, subjects.TagRaise{By: 10}); return err },
		"registry": func() error { _, err := oneregistry.List(ctx, natsbus.New(operator, ns)); return err },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// missingRights are the beginnings of subjects that a worker may not publish.
var missingRights = []string{
	"$JS.FC.", "$JS.API.CONSUMER.CREATE.", "$JS.API.STREAM.MSG.GET.", "$JS.API.STREAM.INFO.", "$KV.",
}

func nameWithout(right string) string { return "without-" + strings.Trim(right, "$.") }

func without(missing string, p *server.Permissions) *server.Permissions {
	p.Publish.Allow = slices.DeleteFunc(p.Publish.Allow, func(subject string) bool {
		return strings.HasPrefix(subject, missing)
	})
	return p
}

// manyTags is more than JetStream delivers in one go.
const manyTags = 10_000

// fillMarks gives the bucket of the marks very many tags.
func fillMarks(t *testing.T, admin *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(admin, jetstream.WithPublishAsyncMaxPending(manyTags))
	if err != nil {
		t.Fatal(err)
	}
	mark := fmt.Appendf(nil, `{"mark":1,"step":10,"description":"%s"}`, strings.Repeat("x", 200))
	for i := range manyTags {
		if _, err := js.PublishAsync(fmt.Sprintf("$KV.id_segments.tag%05d", i), mark); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the marks were not written")
	}
}

// listAll returns how many tags there are. It asks for a page again on a machine that
// is too busy to list it in time.
func listAll(t *testing.T, operator *nats.Conn) (n int) {
	t.Helper()
	tags := client.New(operator)
	for after := ""; ; {
		var page []subjects.TagInfo
		waitFor(t, "a page of tags", func() (listed bool) {
			var err error
			page, err = tags.ListTags(patient(t), subjects.TagList{After: after})
			if e, ok := errors.AsType[*subjects.Error](err); err != nil && (!ok || e.Code != subjects.Unavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
		if len(page) == 0 {
			return n
		}
		n, after = n+len(page), page[len(page)-1].Tag
	}
}

func TestVeryManyTagsAreListedWithoutTheRightToAnswerFlowControl(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"worker", nameWithout("$JS.FC.")} {
		seen := new(violations)
		urlOf := startWithUsers(t, seen)
		cfg := configOn(t, urlOf(user), t.TempDir())
		inNoHurry(0, &cfg)
		stop := startWith(t, cfg)
		waitFor(t, "the worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
		fillMarks(t, connectTo(t, urlOf("admin")))
		if n := listAll(t, connectTo(t, urlOf("operator"))); n != manyTags {
			t.Errorf("%s: %d tags, want %d", user, n, manyTags)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if user == "worker" {
			seen.report(t)
		}
	}
}

// A worker without a right gets no answer to what it may not ask, and must not wait for one for long.
func TestRequestsAndStopsAreBoundedWhateverRightIsMissing(t *testing.T) {
	t.Parallel()
	for _, missing := range missingRights {
		t.Run(nameWithout(missing), func(t *testing.T) {
			t.Parallel()
			urlOf := startWithUsers(t, new(violations))
			first, stopFirst := startOn(t, urlOf("worker"), t.TempDir()) // makes the buckets
			waitFor(t, "the worker is ready", ok(first+"/readyz"))
			if err := stopFirst(); err != nil {
				t.Fatal(err)
			}
			monitor, stop := startOn(t, urlOf(nameWithout(missing)), t.TempDir())
			waitFor(t, "it says how it is", func() bool { code, _ := get(monitor + "/readyz"); return code != 0 })
			operator := connectTo(t, urlOf("operator"))
			waitFor(t, "tags are listed, or refused", func() bool {
				began := time.Now()
				_, err := operator.Request(subjects.DefaultNamespace.TagList(), nil, patience)
				if took := time.Since(began); err == nil && took > 15*time.Second {
					t.Errorf("a list took %v", took)
				}
				return err == nil
			})
			began := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the stop took %v", took)
			}
		})
	}
}
