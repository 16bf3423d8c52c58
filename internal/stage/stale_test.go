package stage_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// stale returns a JetStream that answers the next few questions about a stream as a member of a cluster that lacks its
// latest messages: one that knows of no leader, or one that leads since that time.
func stale(t *testing.T, stream string, answers int64, since *time.Time) jetstream.JetStream {
	t.Helper()
	nc := natsid().Conn
	var left atomic.Int64
	left.Store(answers)
	sub, err := nc.Subscribe("stale.>", func(m *nats.Msg) {
		subject := "$JS.API." + strings.TrimPrefix(m.Subject, "stale.")
		if subject != "$JS.API.STREAM.INFO."+stream || left.Add(-1) < 0 {
			_ = nc.PublishMsg(&nats.Msg{Subject: subject, Reply: m.Reply, Data: m.Data, Header: m.Header})
			return
		}
		go func() {
			reply, err := nc.Request(subject, m.Data, time.Minute)
			if err != nil {
				return
			}
			var info map[string]any
			_ = json.Unmarshal(reply.Data, &info)
			info["cluster"] = map[string]any{"raft_group": "S", "leader_since": since}
			info["state"].(map[string]any)["last_seq"] = 10
			answer, _ := json.Marshal(info)
			_ = nc.Publish(m.Reply, answer)
		}()
	})
	must(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	must(t, nc.Flush())
	js, err := jetstream.NewWithAPIPrefix(nc, "stale")
	must(t, err)
	return js
}

// The stage said that a whole source was set back, and ended for good.
func TestAServerThatLacksMessagesDoesNotEndAStage(t *testing.T) {
	since := time.Now()
	for name, tc := range map[string]struct {
		answers int64
		since   *time.Time
		ends    bool
		want    string
	}{
		"no leader":            {5, nil, false, "it has no leader"},
		"a deposed leader":     {2, &since, false, "was set back"},
		"the leader each time": {3, &since, true, "was set back"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := newPair(t, 20)
			must(t, p.stage().Run(t.Context()))
			p.publish(20, 30)
			sound := p.js
			p.js = stale(t, p.source, tc.answers, tc.since)
			var log natstest.Buffer
			err := p.stage(func(c *stage.Config) {
				c.Settle, c.Log = time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
			}).Run(t.Context())
			_, ended := errors.AsType[*stage.Stop](err)
			if all := log.String(); ended != tc.ends || !strings.Contains(all, tc.want) {
				t.Errorf("it ends with %v: %s", err, all)
			}
			if !tc.ends {
				p.js = sound
				p.verify(30)
			}
		})
	}
}

// A message that its leader lacks is passed by nobody.
func TestAnElectionBetweenTwoAnswersPassesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, plain)
		src := &elected{world: w}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(20 * time.Second)
			src.armed.Store(true)
			w.publish(foreign, plain, foreign)
		}()
		must(t, w.stage(false, func(c *stage.Config) { c.Source = src }).Run(ctx))
		w.judge()
	})
}

// elected is a source that delivers a message late, and whose second leader does not have it when it says what is to
// be read.
type elected struct {
	*world
	armed atomic.Bool
}

func (e *elected) State(ctx context.Context) (stage.SourceState, error) {
	s, err := e.world.State(ctx)
	if err == nil && s.Last == 4 && e.armed.Swap(false) {
		s.End, s.Leader = 1, "the one before"
	}
	return s, err
}

func (e *elected) Open(ctx context.Context, after uint64) (stage.Reader, error) {
	r, err := e.world.Open(ctx, after)
	return lateReader{r, e}, err
}

type lateReader struct {
	stage.Reader
	e *elected
}

func (r lateReader) Next(ctx context.Context) (stage.Message, error) {
	m, err := r.Reader.Next(ctx)
	if err == nil && r.e.armed.Load() {
		<-ctx.Done()
		return stage.Message{}, context.Cause(ctx)
	}
	return m, err
}

// A backup that is restored has the time of creation that the stream had.
func TestASourceThatIsSetBackAndWrittenAgainStopsTheStage(t *testing.T) {
	for after, want := range map[int]string{
		50: "was set back: it ends with message 150", 100: "written again", 200: "written again",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(t, 1, make([]kind, 200)...)
			must(t, w.stage(true).Run(t.Context()))
			w.source = w.source[:100]
			w.shift = time.Hour
			w.publish(make([]kind, after)...)
			wantStop(t, w.stage(true).Run(t.Context()), want)
			if n := len(w.target); n != 200 {
				t.Errorf("the target holds %d messages", n)
			}
		})
	}
}

// answering is a source that gives these answers to the first questions about its state.
type answering struct {
	*world
	answers []error
}

func (a *answering) State(ctx context.Context) (stage.SourceState, error) {
	if len(a.answers) > 0 {
		err := a.answers[0]
		a.answers = a.answers[1:]
		return stage.SourceState{}, err
	}
	return a.world.State(ctx)
}

// What was found before an outage says nothing about the leader after it.
func TestThreeFindingsInARowEndAStage(t *testing.T) {
	set := &stage.Stop{Why: "set back"}
	for _, tc := range []struct {
		answers []error
		ends    bool
	}{
		{[]error{set, set, errLost, set, set}, false}, {[]error{errLost, set, set, set}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(t, 1, plain)
			err := w.stage(true, func(c *stage.Config) { c.Source = &answering{w, tc.answers} }).Run(t.Context())
			if (err != nil) != tc.ends {
				t.Errorf("after %v it ends with %v", tc.answers, err)
			}
		})
	}
}

// A request that is lost with a connection gets no answer.
func TestAQuestionWithoutAnAnswerEnds(t *testing.T) {
	t.Parallel()
	nc := natsid().Conn
	sub, err := nc.SubscribeSync("mute.>")
	must(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	js, err := jetstream.NewWithAPIPrefix(nc, "mute")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := stage.SourceOn(js, "S").TimeOf(context.WithoutCancel(ctx), 1)
		answered <- err
	}()
	select {
	case err := <-answered:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("it never ends")
	}
}
