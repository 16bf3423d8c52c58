package stage_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// olderThan is how a server of 2.11 describes itself and its streams.
var olderThan = []struct {
	is   *regexp.Regexp
	says string
}{
	{regexp.MustCompile(`"version":"2\.\d\d\.`), `"version":"2.11.`},
	{regexp.MustCompile(`"_nats\.level":"\d"`), `"_nats.level":"1"`},
	{regexp.MustCompile(`"_nats\.ver":"2\.\d\d\.`), `"_nats.ver":"2.11.`},
}

// older returns the URL of a server that says that it is 2.11.
func older(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", u.Host)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(behind, client); _ = behind.Close() }()
			go func() {
				defer func() { _ = client.Close() }()
				for lines := bufio.NewReader(behind); ; {
					line, err := lines.ReadString('\n')
					for _, o := range olderThan {
						line = o.is.ReplaceAllString(line, o.says)
					}
					if _, failed := io.WriteString(client, line); failed != nil || err != nil {
						return
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}

func TestAServerBefore212IsRefusedAndNothingIsWritten(t *testing.T) {
	server := natstest.Start(t)
	nc := natstest.Connect(t, server)
	js, err := jetstream.New(nc)
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FROM", Subjects: []string{"from.>"}})
	must(t, err)
	_, err = js.Publish(t.Context(), "from.x", nil)
	must(t, err)
	old, err := jetstream.New(natstest.Connect(t, older(t, server)))
	must(t, err)
	to := stage.TargetOn(old, "TO", "stamp_test")
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "too old for atomic batches") ||
			!strings.Contains(err.Error(), "2.12") || !strings.Contains(err.Error(), "2.11") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a target that is to be made", to.Create(t.Context(), []string{"to.>"}))
	if _, err := js.Stream(t.Context(), "TO"); err == nil {
		t.Error("the target was made")
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TO", Subjects: []string{"to.>"}})
	must(t, err)
	p := &pair{t: t, js: old, ids: client.New(nc), source: "FROM", target: "TO"}
	t.Cleanup(p.ids.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	refused("a target that is there", p.stage().Run(ctx))
	must(t, to.Create(t.Context(), []string{"to.>"}))
	refused("one that shall be changed", p.stage().Run(ctx))
	if s, err := js.Stream(t.Context(), "TO"); err != nil || s.CachedInfo().State.LastSeq != 0 {
		t.Errorf("something was written: %v", err)
	}
}
