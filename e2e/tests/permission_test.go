package tests

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment/kvstore"
)

// startGuarded starts a server whose user worker may publish what docs/operations.md lists for the bucket of the marks,
// and no more, and returns a JetStream of the worker and one of an administrator.
func startGuarded(t *testing.T) (worker, admin jetstream.JetStream) {
	t.Helper()
	allowed := server.SubjectPermission{Allow: []string{
		"$JS.API.STREAM.INFO.KV_id_segments", "$JS.API.STREAM.MSG.GET.KV_id_segments",
		"$JS.API.CONSUMER.CREATE.KV_id_segments.*.$KV.id_segments.>", "$JS.API.CONSUMER.DELETE.KV_id_segments.>",
		"$KV.id_segments.>", "_INBOX.>",
	}}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "worker", Password: "w", Permissions: &server.Permissions{Publish: &allowed}},
			{Username: "admin", Password: "a"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.WaitForShutdown)
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	as := func(user, password string) jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, password))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	return as("worker", "w"), as("admin", "a")
}

func TestAWorkerWithoutTheRightToUpdateBucketsServesFromAnOlderOne(t *testing.T) {
	t.Parallel()
	worker, admin := startGuarded(t)
	if _, err := admin.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "id_segments"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Publish(t.Context(), "$KV.id_segments.order", []byte(`{"mark":101,"step":10}`)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cfg := kvstore.Config{Bucket: "id_segments", Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := kvstore.New(buckets.OnJetStream(worker), cfg)
	if _, err := s.Open(patient(t)); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Load(patient(t), "order", 0, 0); err != nil || l.Start < 101 {
		t.Errorf("loaded %v, %v", l, err)
	}
	if n := strings.Count(log.String(), "STREAM.UPDATE.KV_id_segments"); n != 1 {
		t.Errorf("%d lines name the missing right, want one:\n%s", n, &log)
	}
	// A worker with the right protects the bucket.
	if _, err := kvstore.New(buckets.OnJetStream(admin), cfg).Open(patient(t)); err != nil {
		t.Fatal(err)
	}
	stream, err := admin.Stream(t.Context(), "KV_id_segments")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err == nil {
		t.Error("the marks were purged")
	}
	if l, err := s.Load(patient(t), "order", 0, 0); err != nil || l.Start < 111 {
		t.Errorf("then loaded %v, %v", l, err)
	}
}
