// Package natstest gives tests a nats-server of their own, connections to it, requests on them, what it leaves behind,
// and a buffer for logs that many goroutines write.
package natstest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/subjects"
)

// Start starts a nats-server with JetStream on a free port of loopback, and returns
// its URL. The server ends with the test.
func Start(tb testing.TB) (url string) {
	tb.Helper()
	return StartWith(tb, "")
}

// StartWith is Start for a server with a configuration.
func StartWith(tb testing.TB, conf string) (url string) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:-1\n"+conf), 0o600); err != nil {
		tb.Fatal(err)
	}
	srv, err := natsembed.Start(natsembed.Config{File: file, StoreDir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.WaitForShutdown)
	tb.Cleanup(srv.Shutdown)
	return srv.ClientURL()
}

// Left returns the goroutines that nats-server v2.15.2 may leave behind when it is shut down: it stops the streams that
// its account lists, and one that is being created is not listed yet. The loops of that stream's store, and the clock
// of the process, continue. A leak check still finds a server that nobody shut down, by its other goroutines.
func Left() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server + ".(*msgBlock).flushLoop"),
		goleak.IgnoreAnyFunction(server + "/ats.Register.func1"),
	}
}

// patience is for how long connections and requests to JetStream wait unless their test says otherwise: a busy
// machine stands still for longer than the defaults of the client.
const patience = time.Minute

// Connect returns a connection, closed when the test ends.
func Connect(tb testing.TB, url string, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.Timeout(patience)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// JetStream returns JetStream on a connection of its own.
func JetStream(tb testing.TB, url string) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(Connect(tb, url), jetstream.WithDefaultTimeout(patience))
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// Behind returns a JetStream whose listings of a bucket contain no key that does not begin with "old.", as those of a
// member of a cluster that does not have all entries yet. All else is answered as ever.
func Behind(tb testing.TB, url, bucket string) jetstream.JetStream {
	tb.Helper()
	nc := Connect(tb, url)
	js, err := jetstream.NewWithAPIPrefix(nc, "behind")
	if err == nil {
		_, err = nc.Subscribe("behind.>", func(m *nats.Msg) {
			subject, all := strings.TrimPrefix(m.Subject, "behind."), "$KV."+bucket+"."
			switch old := all + "old."; {
			case strings.HasPrefix(subject, "$KV."):
			case strings.HasPrefix(subject, "CONSUMER.CREATE."):
				m.Data = bytes.ReplaceAll(m.Data, []byte(all), []byte(old))
				subject = strings.ReplaceAll(subject, all, old)
				fallthrough
			default:
				subject = "$JS.API." + subject
			}
			_ = nc.PublishMsg(&nats.Msg{Subject: subject, Reply: m.Reply, Data: m.Data, Header: m.Header})
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// A Buffer is a [bytes.Buffer] for many goroutines. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Ask sends a request of an operator once, and returns the answer, or the refusal.
func Ask[T any](ctx context.Context, nc *nats.Conn, subject string, body any) (answer T, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	m, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return answer, err
	}
	if refused := subjects.ParseError(m.Header); refused != nil {
		return answer, refused
	}
	return answer, json.Unmarshal(m.Data, &answer)
}
