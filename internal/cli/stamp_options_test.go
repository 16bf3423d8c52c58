package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/stamp"
)

// A stamping is a source with messages, and the commands that copy it.
type stamping struct {
	t   *testing.T
	js  jetstream.JetStream
	url string
}

func (s *stamping) run(target string, flags ...string) result {
	s.t.Helper()
	return natsid(s.t, append([]string{"stamp", "--nats=" + s.url, "--from=ORDERS", "--to=" + target, "--once",
		"--create", "--into=" + strings.ToLower(target) + ".>"}, flags...)...)
}

func (s *stamping) publish(subject, body string, header ...string) {
	s.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	publish(s.t, s.js, m)
}

func (s *stamping) create(c jetstream.StreamConfig) {
	s.t.Helper()
	asked(s.t, func(ctx context.Context) (jetstream.Stream, error) { return s.js.CreateStream(ctx, c) })
}

// holds checks the messages of a stream: the result of text for each.
func (s *stamping) holds(stream string, text func(*jetstream.RawStreamMsg) string, want ...string) {
	s.t.Helper()
	var got []string
	for _, m := range messages(s.t, s.js, stream) {
		got = append(got, text(m))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Errorf("stream %s holds\n%s\nwant\n%s", stream, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// withID tells an ID that is not one of natsid; those are small here, with holes at most.
func withID(m *jetstream.RawStreamMsg) string {
	id, err := stamp.ID(m.Header)
	if err == nil && id < foreignID {
		return fmt.Sprintf("%.9s", m.Data)
	}
	return fmt.Sprintf("%.9s %v %v", m.Data, id, err)
}

// foreignID is one that no tag of these tests reaches.
const foreignID = 1_000_000_000

func withReason(m *jetstream.RawStreamMsg) string {
	source := strings.Fields(m.Header.Get("Natsid-Source"))
	return fmt.Sprintf("%.9s %s %s %s %s", m.Data, source[0], source[2],
		m.Header.Get("Natsid-Reason"), m.Header.Get("Natsid-Subject"))
}

func TestStampTakesAPartAndKeepsWhatCannotBeCopied(t *testing.T) {
	t.Parallel()
	s := &stamping{t: t, url: serve(t).url}
	s.js = withOrders(t, s.url)
	s.create(jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead"}})
	s.publish("orders.de.new", "a")
	s.publish("orders.fr.new", "b")
	s.publish("orders.de.new", "c")
	between := time.Now()
	s.publish("orders.de.old", "d")
	s.publish("orders.de.new", "e", "Natsid-Id", fmt.Sprint(foreignID))
	large := strings.Repeat("x", 2000)
	s.publish("orders.fr.new", large)

	for flags, want := range map[string]string{
		"--tag=a --filter=orders..x":                  `--filter "orders..x"`,
		"--tag=a --filter=orders.> --filter=orders.x": "match some subjects both",
		"--tag=a --existing=dead-letter":              "want --dead-letter",
		"--tag=a --dead-letter=dead.>":                "without wildcards",
		"--tag=a --since=tomorrow":                    `"tomorrow": want a time`,
		"--tag=a --since=2999-01-01T00:00:00Z":        "want a time in the past",
	} {
		s.run("REFUSED", strings.Fields(flags)...).want(t, 2, want)
	}

	s.run("PART", "--tag=part", "--filter=orders.*.old", "--filter=orders.fr.new").want(t, 0)
	s.holds("PART", withID, "b", "d", "xxxxxxxxx")

	s.run("LATE", "--tag=late", "--since="+between.Format(time.RFC3339Nano), "--existing=keep").want(t, 0)
	s.holds("LATE", withID, "d", fmt.Sprint("e ", foreignID, " <nil>"), "xxxxxxxxx")
	s.run("LATE", "--tag=late", "--since=1h").want(t, 0, "--since has no effect")
	s.holds("LATE", withID, "d", fmt.Sprint("e ", foreignID, " <nil>"), "xxxxxxxxx")

	s.run("NO-LETTERS", "--tag=a").want(t, 1, "message 5 of stream ORDERS", "has-id")
	s.run("NO-LETTERS", "--tag=a", "--dead-letter=nowhere").want(t, 1, "no stream takes nowhere", "--dead-letter")
	s.run("NO-LETTERS", "--tag=a", "--dead-letter=orders.x").want(t, 1, "stream ORDERS takes orders.x")
	s.run("NO-LETTERS", "--tag=a", "--dead-letter=no-letters.orders.x").want(t, 1, "stream NO-LETTERS takes")

	small := jetstream.StreamConfig{
		Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 1000, AllowAtomicPublish: true,
	}
	s.create(small)
	letters := []string{"--tag=a", "--dead-letter=dead", "--existing=dead-letter"}
	s.run("SMALL", "--tag=a", "--existing=keep").want(t, 1, "message 6 of stream ORDERS", "too-large",
		"max_msg_size of stream SMALL")
	s.holds("SMALL", withID, "a", "b", "c", "d", fmt.Sprint("e ", foreignID, " <nil>"))
	asked(t, func(ctx context.Context) (any, error) {
		err := s.js.DeleteStream(ctx, "SMALL")
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil // the answer to the request before was lost
		}
		return nil, err
	})
	s.create(small)
	for range 2 {
		s.run("SMALL", letters...).want(t, 0)
		s.holds("SMALL", withID, "a", "b", "c", "d")
		s.holds("DEAD", withReason,
			"e ORDERS 5 has-id orders.de.new", "xxxxxxxxx ORDERS 6 too-large orders.fr.new")
	}
}
