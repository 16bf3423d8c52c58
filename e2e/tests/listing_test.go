package tests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/subjects"
)

// manyTags is more than a listing asks for at once.
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
			if e, ok := errors.AsType[*subjects.Error](err); err != nil && !errors.Is(err, client.ErrNotServed) &&
				(!ok || e.Code != subjects.Unavailable) {
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

// missingRights are the beginnings of subjects that a worker may not publish.
var missingRights = []string{
	"$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.STREAM.MSG.GET.", "$JS.API.STREAM.INFO.", "$KV.",
}

func nameWithout(right string) string { return "without-" + strings.Trim(right, "$.") }

// serverOfMany starts a server with a worker, one worker without each of missingRights, an operator and an admin.
func serverOfMany(t *testing.T) *server.Server {
	t.Helper()
	users := map[string]*server.Permissions{
		"worker": permitted(rights.Worker), "operator": permitted(rights.Operator), "admin": nil,
	}
	for _, missing := range missingRights {
		p := permitted(rights.Worker)
		p.Publish.Allow = slices.DeleteFunc(p.Publish.Allow, func(subject string) bool {
			return strings.HasPrefix(subject, missing)
		})
		users[nameWithout(missing)] = p
	}
	return serverOf(t, users)
}

func TestVeryManyTagsAreListed(t *testing.T) {
	t.Parallel()
	seen := new(violations)
	s := serverOfMany(t)
	s.SetLoggerV2(seen, false, false, false)
	cfg := configOn(t, urlOf(s, "worker"), t.TempDir())
	inNoHurry(0, &cfg)
	startWith(t, cfg)
	waitFor(t, "the worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	fillMarks(t, connectTo(t, urlOf(s, "admin")))
	if n := listAll(t, connectTo(t, urlOf(s, "operator"))); n != manyTags {
		t.Errorf("%d tags, want %d", n, manyTags)
	}
	seen.report(t)
}

// A worker without a right gets no answer to what it may not ask, and must not wait for one for long.
func TestRequestsAndStopsAreBoundedWhateverRightIsMissing(t *testing.T) {
	t.Parallel()
	for _, missing := range missingRights {
		t.Run(nameWithout(missing), func(t *testing.T) {
			t.Parallel()
			s := serverOfMany(t)
			first, stopFirst := startOn(t, urlOf(s, "worker"), t.TempDir()) // makes the buckets
			waitFor(t, "the worker is ready", ok(first+"/readyz"))
			if err := stopFirst(); err != nil {
				t.Fatal(err)
			}
			monitor, stop := startOn(t, urlOf(s, nameWithout(missing)), t.TempDir())
			waitFor(t, "it says how it is", func() bool { code, _ := get(monitor + "/readyz"); return code != 0 })
			operator := connectTo(t, urlOf(s, "operator"))
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
