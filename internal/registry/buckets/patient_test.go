package buckets

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// silent is a JetStream that leaves the first requests without an answer.
type silent struct {
	fails []error // of each of them; nil is no answer at all
	asks  int
}

func (s *silent) ask(ctx context.Context) error {
	if s.asks++; s.asks > len(s.fails) {
		return nil
	}
	if err := s.fails[s.asks-1]; err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *silent) Info(ctx context.Context, _ string) (Info, error)       { return Info{}, s.ask(ctx) }
func (s *silent) Last(ctx context.Context, _, _ string) (Entry, error)   { return Entry{}, s.ask(ctx) }
func (s *silent) List(ctx context.Context, _, _ string) ([]Entry, error) { return nil, s.ask(ctx) }
func (s *silent) Next(ctx context.Context, _, _ string, _ uint64) (Entry, error) {
	return Entry{}, s.ask(ctx)
}
func (s *silent) Make(ctx context.Context, _ jetstream.StreamConfig) error { return s.ask(ctx) }
func (s *silent) Publish(ctx context.Context, _, _ string, _ Write) (uint64, error) {
	return 0, s.ask(ctx)
}

func TestACommandAsksUntilThereIsAnAnswerAndEndsInTime(t *testing.T) {
	type call func(context.Context, Streams) error
	read := func(ctx context.Context, s Streams) error { _, err := s.Last(ctx, "b", "k"); return err }
	next := func(ctx context.Context, s Streams) error { _, err := s.Next(ctx, "b", "", 1); return err }
	info := func(ctx context.Context, s Streams) error { _, err := s.Info(ctx, "b"); return err }
	list := func(ctx context.Context, s Streams) error { _, err := s.List(ctx, "b", ""); return err }
	write := func(ctx context.Context, s Streams) error { _, err := s.Publish(ctx, "b", "k", Write{}); return err }
	build := func(ctx context.Context, s Streams) error { return s.Make(ctx, jetstream.StreamConfig{}) }
	ever, lacks := make([]error, 100), &RightError{Subject: "s"}
	for name, c := range map[string]struct {
		call  call
		fails []error
		want  error
		asks  int
		took  time.Duration // at most
	}{
		"an answer":                        {read, nil, nil, 1, 0},
		"a request that is lost":           {read, ever[:1], nil, 2, 3 * time.Second},
		"of the next entry":                {next, ever[:1], nil, 2, 3 * time.Second},
		"of the stream":                    {info, ever[:2], nil, 3, 7 * time.Second},
		"a connection that is lost":        {read, []error{errLost, errLost}, nil, 3, time.Second},
		"a listing on it":                  {list, []error{errLost}, nil, 2, time.Second},
		"an answer that refuses":           {read, []error{ErrNoKey}, ErrNoKey, 1, 0},
		"a right that lacks":               {list, []error{lacks}, lacks, 1, 0},
		"no answer ever":                   {read, ever, ErrNoJetStream, 4, Patience},
		"no listing ever":                  {list, ever, ErrNoJetStream, 1, Patience},
		"a write without answer":           {write, ever, context.DeadlineExceeded, 1, writePatience},
		"a write on a connection lost":     {write, []error{errLost}, errLost, 1, 0},
		"the making of one without answer": {build, ever, context.DeadlineExceeded, 1, writePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				js, began := &silent{fails: c.fails}, time.Now()
				err := c.call(t.Context(), Patient(js))
				took := time.Since(began)
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if js.asks != c.asks || took > c.took {
					t.Errorf("%d asks in %v, want %d in %v", js.asks, took, c.asks, c.took)
				}
			})
		})
	}
}

func TestThatJetStreamHasNoLeaderIsSaidInPlainWordsAndAskedAgain(t *testing.T) {
	err := translate(&jetstream.APIError{Code: 503, ErrorCode: codeAway})
	if err.Error() != "JetStream has no leader" || !isSilence(err) {
		t.Errorf("%v, asked again: %v", err, isSilence(err))
	}
}
