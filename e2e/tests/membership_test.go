package tests

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// The control connection, the serving one and that of the caller are all that the server takes.
func TestAWorkerThatLosesItsConnectionComesBackAtTheLimitOfConnections(t *testing.T) {
	t.Parallel()
	srv := launch(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), MaxConn: 3})
	monitor, stop := startReady(t, srv.ClientURL())
	nc := natstest.Connect(t, srv.ClientURL(), nats.MaxReconnects(-1))
	if _, err := nats.Connect(srv.ClientURL()); err == nil {
		t.Fatal("the server takes more connections")
	}
	ids := clientOn(nc)
	for range 3 {
		before := servingConnection(t, srv)
		if err := srv.DisconnectClientByID(before); err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		wait.Until(t, "another serving connection", func() bool { return servingConnection(t, srv) > before })
		wait.Until(t, "the worker is ready again", ok(monitor+"/readyz"))
		if took := time.Since(lost); took > slack {
			t.Errorf("it is ready after %v", took)
		}
		if _, err := client.Must(ids.Snowflake(client.SnowflakeConfig{})).Next(patient(t)); err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// servingConnection returns the number of the connection that requests arrive on, 0 if there is none.
func servingConnection(t *testing.T, srv *server.Server) (id uint64) {
	t.Helper()
	all, err := srv.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all.Conns {
		if c.Name == "natsid" {
			id = max(id, c.Cid)
		}
	}
	return id
}
