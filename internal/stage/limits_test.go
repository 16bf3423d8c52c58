package stage_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// Bodies of a whole pull would otherwise fill the connection, where answers of JetStream wait behind them.
func TestLargeMessagesAreReadInPartsThatLeaveRoomForAnswers(t *testing.T) {
	const n = 200
	retries := uint64(1)
	// On a busy machine JetStream can once be silent for the second after which a stage reads anew.
	for try := 1; try <= 2 && retries > 0; try++ {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			p := newPair(t, 0)
			body := make([]byte, 1_000_000)
			for range n {
				_, err := p.js.Publish(t.Context(), t.Name()+".new", body)
				must(t, err)
			}
			var log natstest.Buffer
			s := p.stage(func(c *stage.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			begun := time.Now()
			must(t, s.Run(t.Context()))
			retries = s.Progress().Retries
			t.Logf("%d messages in %v, %d retries: %s", n, time.Since(begun), retries, log.String())
			if p.held() != n {
				t.Errorf("%d messages are copied", p.held())
			}
		})
	}
	if retries > 0 {
		t.Errorf("%d retries", retries)
	}
}

func (p *pair) change(change func(*jetstream.StreamConfig)) {
	p.t.Helper()
	s, err := p.js.Stream(p.t.Context(), p.target)
	must(p.t, err)
	c := s.CachedInfo().Config
	change(&c)
	_, err = p.js.UpdateStream(p.t.Context(), c)
	must(p.t, err)
}

// Each limit is named as it is: a user who raises another one is no further.
func TestAMessageBeyondALimitIsADeadLetterThatNamesTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		header, body, most int
		want, bytes        string
	}{
		"headers":      {65_400, 5, -1, "its headers have 65", "5"},
		"max_msg_size": {10, 2000, 1000, "max_msg_size of stream", ""},
		"max_payload":  {10, 1<<20 - 200, -1, "max_payload of the server is 1048576", "1048376"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 1)
			p.change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = int32(tc.most) })
			letters := p.target + "-letters"
			_, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: letters, Subjects: []string{letters}})
			must(t, err)
			_, err = p.js.PublishMsg(t.Context(), &nats.Msg{Subject: p.t.Name() + ".new", Data: make([]byte, tc.body),
				Header: nats.Header{"Large": {strings.Repeat("x", tc.header)}}})
			must(t, err)
			const remedy = "remove the cause, or make dead letters"
			err = p.stage().Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), remedy) {
				t.Errorf("without dead letters: %v", err)
			}
			must(t, p.stage(func(c *stage.Config) {
				c.DeadLetters = stage.DeadLettersOn(p.js, letters, p.source, p.target)
			}).Run(t.Context()))
			p.verify(1)
			s, err := p.js.Stream(t.Context(), letters)
			must(t, err)
			m, err := s.GetMsg(t.Context(), 1)
			must(t, err)
			h := m.Header
			if d := h.Get(stage.DetailHeader); !strings.Contains(d, tc.want) || strings.Contains(d, "raise") ||
				h.Get(stage.ReasonHeader) != string(stage.TooLarge) || h.Get(stage.BytesHeader) != tc.bytes {
				t.Errorf("the dead letter has headers %.300v", h)
			}
		})
	}
}

func TestATargetMayBeGivenASubjectWhileAStageRuns(t *testing.T) {
	p := newPair(t, 1)
	s := p.stage(func(c *stage.Config) { c.Once = false })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	wait.Until(t, "a message is copied", func() bool { return p.held() == 1 })
	c := p.stream().CachedInfo().Config
	c.Subjects = append(c.Subjects, "more")
	_, err := p.js.UpdateStream(t.Context(), c)
	must(t, err)
	p.change(func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "stamped.more") })
	_, err = p.js.Publish(t.Context(), "more", nil)
	must(t, err)
	wait.Until(t, "another one is copied", func() bool { return p.held() == 2 || len(ended) > 0 })
	cancel()
	must(t, <-ended)
}

func TestAFullTargetIsNamedWithItsLimitUntilThereIsRoom(t *testing.T) {
	p := newPair(t, 10)
	p.change(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 5, jetstream.DiscardNew })
	s := p.stage()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	const want = "-to takes nothing: nats: API error: code=503 err_code=10077 description=maximum messages exceeded"
	wait.Until(t, "it says why", func() bool { return strings.Contains(s.Progress().Why, want) })
	p.change(func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 })
	must(t, <-ended)
	p.verify(10)
}

// A stage that stood still, and is late, must not replace the hint that the next run may need.
func TestAnOlderHintDoesNotReplaceANewerOne(t *testing.T) {
	p := newPair(t, 0)
	at := time.Now().UTC().Round(0)
	hint := func(last, seq uint64) stage.Hint {
		return stage.Hint{Last: last, Created: at, Position: stage.Position{Stream: p.source, Created: at, Seq: seq}}
	}
	for _, step := range []struct{ set, want stage.Hint }{
		{hint(0, 3), hint(0, 3)}, {hint(7, 9), hint(7, 9)}, {hint(5, 8), hint(7, 9)}, {hint(7, 8), hint(7, 9)},
		{hint(7, 12), hint(7, 12)},
	} {
		must(t, p.to().SetHint(t.Context(), step.set))
		if got, err := p.to().Hint(t.Context()); err != nil || got != step.want {
			t.Errorf("after %v the hint is %v, want %v: %v", step.set, got, step.want, err)
		}
	}
	kv, err := p.js.KeyValue(t.Context(), "stamp_test")
	must(t, err)
	must(t, kv.Delete(t.Context(), p.target))
	must(t, p.to().SetHint(t.Context(), hint(1, 1)))
	if got, err := p.to().Hint(t.Context()); err != nil || got != hint(1, 1) {
		t.Errorf("the first hint after a deletion is %v, %v", got, err)
	}
}

func TestASourceIsReadInPullsThatItsServerAllows(t *testing.T) {
	js := natstest.JetStream(t, natstest.StartWith(t, "jetstream { limits { max_request_batch: 10 } }"))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FROM", Subjects: []string{"from.>"}})
	must(t, err)
	for range 25 {
		_, err := js.Publish(t.Context(), "from.new", nil)
		must(t, err)
	}
	r, err := stage.SourceOn(js, "FROM").Open(t.Context(), 0)
	must(t, err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for seq := range uint64(25) {
		if m, err := r.Next(ctx); err != nil || m.Seq != seq+1 {
			t.Fatalf("message %d: %v, want %d", m.Seq, err, seq+1)
		}
	}
}
