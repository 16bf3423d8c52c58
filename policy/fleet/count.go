package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/subjects"
)

// While a rate is in force, workers must know how many share it. One of them asks all now and then, and publishes how
// many serve segments; the others hear it and do not ask. So the cost grows with the workers, not with their square.

const (
	countEvery = 2 * time.Second
	countFor   = time.Second // for the answers
)

// A count is how many workers there are. It rises at once, and falls when two counts in a row say so: an answer may
// come late.
type count struct {
	last  int          // only the subscription's goroutine uses it
	heard atomic.Int64 // Unix ns of the last count
}

// keepCount counts until ctx ends.
func (s *Settings) keepCount(ctx context.Context) {
	sub, err := s.cfg.Conn.Subscribe(s.cfg.Namespace.SettingsWorkers(), func(m *nats.Msg) {
		if n, err := strconv.Atoi(string(m.Data)); err == nil && n > 0 {
			s.cfg.Gate.SetWorkers(max(n, s.count.last))
			s.count.last = n
			s.count.heard.Store(time.Now().UnixNano())
		}
	})
	if err != nil {
		s.cfg.Log.Warn("workers are not counted, so each takes a rate for itself alone", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a connection that is gone
	for {
		select {
		case <-time.After(jitter.Around(countEvery / 2)):
		case <-ctx.Done():
			return
		}
		heard := time.Since(time.Unix(0, s.count.heard.Load()))
		if !s.cfg.Gate.Counts() || 0 <= heard && heard < countEvery {
			continue
		}
		if answers, err := s.ask(ctx, countFor, nil); err == nil && len(answers) > 0 {
			s.tellCount(answers)
		}
	}
}

// tellCount publishes how many workers serve segments.
func (s *Settings) tellCount(answers []answer) {
	n := 0
	for _, a := range answers {
		if a.serves {
			n++
		}
	}
	if n > 0 {
		// It fails only without a connection; then nobody else would hear it.
		_ = s.cfg.Conn.Publish(s.cfg.Namespace.SettingsWorkers(), strconv.AppendInt(nil, int64(n), 10))
	}
}

// An answer is what a worker says of itself.
type answer struct {
	instance string
	serves   bool   // segments
	honours  uint64 // see [Settings.Honoured]
}

// soon is how long those have to answer that nobody has named.
const soon = 100 * time.Millisecond

// ask asks all workers, and waits for their answers: for as long as given, or until soon after all those named.
func (s *Settings) ask(ctx context.Context, wait time.Duration, named []string) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	sub, err := s.cfg.Conn.SubscribeSync(s.cfg.Conn.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a connection that is gone
	if err := s.cfg.Conn.PublishRequest(s.cfg.Namespace.SegmentPing(), sub.Subject, nil); err != nil {
		return nil, err
	}
	for missing := slices.Clone(named); ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return answers, nil // the time is over, or nobody is there
		}
		var ping micro.Ping
		if json.Unmarshal(m.Data, &ping) != nil {
			continue
		}
		a := answer{instance: ping.Metadata[subjects.MetaInstance]}
		a.honours, _ = strconv.ParseUint(ping.Metadata[subjects.MetaSettings], 10, 64)
		a.serves = ping.Metadata["segment"] == subjects.Ready
		answers = append(answers, a)
		if len(missing) == 0 {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.instance })
		if len(missing) == 0 {
			time.AfterFunc(soon, cancel)
		}
	}
}
