package tests

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// A worker that may not receive answers says so for each bucket, not that JetStream has no leader, and goes on soon
// after the right is given.
func TestAMissingRightToAnswersIsNamedUntilItIsGiven(t *testing.T) {
	t.Parallel()
	opts := &server.Options{JetStream: true, Users: []*server.User{{Username: "u", Password: "p",
		Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{">"}},
			Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}},
		}}}}
	s := launch(t, opts)
	js, err := jetstream.New(connectTo(t, s.ClientURL(), nats.UserInfo("u", "p"), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond)))
	if err != nil {
		t.Fatal(err)
	}
	streams := buckets.OnJetStream(js)
	for _, bucket := range []string{"first", "second"} {
		began := time.Now()
		_, err := streams.Info(t.Context(), bucket)
		if e, ok := errors.AsType[*buckets.RightError](err); !ok || !e.Subscribe || time.Since(began) > 2*time.Second {
			t.Errorf("%s: %v after %v, want the right that is missing, at once", bucket, err, time.Since(began))
		}
	}
	given := opts.Clone()
	given.Users = []*server.User{{Username: "u", Password: "p"}}
	if err := s.ReloadOptions(given); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, err := streams.Info(t.Context(), "first")
		if errors.Is(err, buckets.ErrNoBucket) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("30 s after the right was given: %v", err)
		}
	}
}
