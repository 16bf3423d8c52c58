package app_test

import (
	"net"
	"testing"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestIDsAreServedThoughTheHTTPPortIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t)
	cfg.HTTP = l.Addr().String()
	i := launch(t, cfg)
	w := i.where()
	i.logs("WARN", "--http", cfg.HTTP)
	if w.HTTP != "" {
		t.Errorf("it reports HTTP on %s", w.HTTP)
	}
	ids(t, patient(natstest.Connect(t, w.URL), ""))
}
