package cli_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// startLeaf starts natsid leaf, and returns its URL once it answers, and the function that stops it.
func startLeaf(t *testing.T, args ...string) (url string, stop func() result) {
	t.Helper()
	address, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	leaf := start(t, append([]string{"leaf", "--listen=" + address}, args...)...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	wait.Until(t, "natsid leaf listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "http://" + address, leaf.stop
}

func getFrom(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestLeafsPathsAreAnsweredByAClientOfTheWorkers(t *testing.T) {
	t.Parallel()
	worker := serve(t, "--layout=js53", "--numbers=7-7", "--max-batch=5000")
	layout, err := snowflake.ParseLayout("js53")
	if err != nil {
		t.Fatal(err)
	}
	url, stop := startLeaf(t, "--nats="+worker.url, "--layout=js53", "--deadline=1m")
	for last := int64(0); last < 2; { // a client whose answer is late asks once more, and leaves a hole
		code, body := getFrom(t, url+"/api/segment/get/order")
		id, err := strconv.ParseInt(body, 10, 64)
		if code != 200 || err != nil || id <= last {
			t.Fatalf("segment: %d %s after %d", code, body, last)
		}
		last = id
	}
	code, body := getFrom(t, url+"/api/snowflake/get/any")
	id, err := subjects.ParseID(body)
	if p, no := layout.Decode(id); code != 200 || err != nil || no != nil || p.Worker != 7 {
		t.Errorf("snowflake: %d %s, %+v", code, body, p)
	}
	if code, body := getFrom(t, url+"/decodeSnowflakeId?snowflakeId="+body); code != 200 ||
		!strings.Contains(body, `"workerId":"7"`) {
		t.Errorf("decoded: %d %s", code, body)
	}
	code, body = getFrom(t, url+"/api/segment/get/order?n=1000001")
	if code != 400 || !strings.Contains(body, "one request may ask for 1000000 at most") {
		t.Errorf("too many: %d %s", code, body)
	}
	got := stop()
	if got.want(t, 0); !strings.Contains(got.out, url) || strings.Contains(got.err, "can take IDs") {
		t.Errorf("it says %q and warns %q, though it listens on loopback", got.out, got.err)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("it still answers")
	}
}

func TestLeafsPathsAre503WithinTheDeadlineWhileNobodyServes(t *testing.T) {
	t.Parallel()
	address := nowhere(t)
	for what, nats := range map[string]string{
		"no worker": natstest.Start(t), "no NATS": address,
	} {
		url, _ := startLeaf(t, "--nats="+nats, "--deadline=500ms")
		began := time.Now()
		code, body := getFrom(t, url+"/api/segment/get/order")
		if took := time.Since(began); code != 503 || !strings.Contains(body, "Result{id=-1,") || took > 10*time.Second {
			t.Errorf("%s: %d %s after %v", what, code, body, took)
		}
	}
	// NATS and a worker come, and need no restart of it.
	url, stop := startLeaf(t, "--nats="+address, "--deadline=100ms")
	serve(t, "--listen="+strings.TrimPrefix(address, "nats://"))
	wait.Until(t, "an ID is given", func() bool {
		code, _ := getFrom(t, url+"/api/segment/get/order")
		return code == 200
	})
	stop().want(t, 0, "NATS is away", "NATS answers")
}

func TestLeafsPathsWarnBeyondLoopback(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it starts, and stops at once
	var out, errs natstest.Buffer
	code := cli.Main(ctx, []string{"leaf", "--listen=:0", "--nats=" + natstest.Start(t)}, &out, &errs)
	result{code, out.String(), errs.String()}.want(t, 0, "every program that reaches Leaf's paths can take IDs")
}
