package app_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

func TestLeafsPathsAreAnsweredFromTheSameMemory(t *testing.T) {
	cfg := settings(t)
	cfg.HTTP, cfg.LeafHTTP = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Numbers = &workerid.Span{First: 700, Last: 700}
	i := launch(t, cfg)
	w := i.where()
	if w.Number != 700 {
		t.Errorf("it has worker number %d", w.Number)
	}
	nc := connect(t, w.URL)
	for _, subject := range []string{"id.segment.order", "id.snowflake"} { // each is sent once, unlike a client's
		if _, err := nc.Request(subject, nil, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	leaf := "http://" + w.LeafHTTP
	if code, body := get(t, leaf+"/api/segment/get/order"); code != 200 || body != "2" {
		t.Errorf("segment: %d %s", code, body)
	}
	code, body := get(t, leaf+"/api/snowflake/get/any")
	var id int64
	if _, err := fmt.Sscan(body, &id); err != nil || code != 200 {
		t.Fatalf("snowflake: %d %s", code, body)
	}
	if p, err := snowflake.Leaf.Decode(id); err != nil || p.Worker != w.Number {
		t.Errorf("snowflake %d: %+v %v, want worker number %d", id, p, err, w.Number)
	}
	// They are counted with those over NATS.
	for _, mode := range []string{"segment", "snowflake"} {
		want := fmt.Sprintf("natsid_ids_total{mode=%q} 2\n", mode)
		if _, metrics := get(t, "http://"+w.HTTP+"/metrics"); !strings.Contains(metrics, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
	i.stop()
	if err := i.end(); err != nil {
		t.Error(err)
	}
	if resp, err := http.Get(leaf + "/api/segment/get/order"); err == nil {
		resp.Body.Close()
		t.Error("it still answers")
	}
}

func TestAStartFailsWhereLeafsAddressIsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t)
	cfg.LeafHTTP = l.Addr().String()
	err = launch(t, cfg).end()
	if !errors.Is(err, app.ErrListenTaken) || !containsAll(err.Error(), cfg.LeafHTTP, "--leaf-http") {
		t.Errorf("%v, want ErrListenTaken that names --leaf-http", err)
	}
}
