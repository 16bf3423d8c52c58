package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/subjects"
)

// While a rate is in force, workers must know how many share it. One worker asks all every countEvery, and publishes
// how many serve segments; the others receive the number and do not ask. So the cost grows with the number of
// workers, not with its square.

const (
	countEvery = 2 * time.Second
	countFor   = time.Second // bounds the wait for answers
)

// A count is the number of workers that share a rate. It rises at once, and falls after two lower counts in a row: an
// answer may come late.
type count struct {
	cfg   *Config
	last  int          // only the subscription's goroutine uses it
	heard atomic.Int64 // Unix ns of the last received count
}

// keep counts until ctx ends.
func (c *count) keep(ctx context.Context) {
	sub, err := c.cfg.Conn.Subscribe(c.cfg.Namespace.SettingsWorkers(), func(m *nats.Msg) {
		if n, err := strconv.Atoi(string(m.Data)); err == nil && n > 0 {
			c.cfg.Gate.SetWorkers(max(n, c.last))
			c.last = n
			c.heard.Store(time.Now().UnixNano())
		}
	})
	if err != nil {
		c.cfg.Log.Warn("workers are not counted, so each takes a rate for itself alone", "error", err)
		return
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails only on a closed connection
	for jitter.Sleep(ctx, jitter.Around(countEvery/2)) == nil {
		heard := time.Since(time.Unix(0, c.heard.Load()))
		if !c.cfg.Gate.HasRate() || 0 <= heard && heard < countEvery {
			continue
		}
		if answers, err := c.ask(ctx, countFor, nil); err == nil && len(answers) > 0 {
			c.tell(answers)
		}
	}
}

// tell publishes how many workers serve segments.
func (c *count) tell(answers []answer) {
	n := 0
	for _, a := range answers {
		if a.servesSegments {
			n++
		}
	}
	if n > 0 {
		// Publish fails only without a connection; then no worker would receive the count.
		_ = c.cfg.Conn.Publish(c.cfg.Namespace.SettingsWorkers(), strconv.AppendInt(nil, int64(n), 10))
	}
}

// An answer is a worker's reply to a ping.
type answer struct {
	instance       string
	servesSegments bool
	honours        uint64 // see [Settings.Honoured]
}

// soon is how long workers that were not named have to answer after all named ones.
const soon = 100 * time.Millisecond

// ask asks all workers, and waits for their answers: for as long as given, or until soon after all named workers
// answered.
func (c *count) ask(ctx context.Context, wait time.Duration, named []string) (answers []answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	missing := slices.Clone(named)
	err = gather.All(ctx, c.cfg.Conn, c.cfg.Namespace.ServicePing(), nil, func(m *nats.Msg) (enough bool) {
		var ping micro.Ping
		if json.Unmarshal(m.Data, &ping) != nil {
			return false
		}
		a := answer{instance: ping.Metadata[subjects.MetaInstance]}
		a.honours, _ = strconv.ParseUint(ping.Metadata[subjects.MetaSettings], 10, 64)
		a.servesSegments = ping.Metadata["segment"] == subjects.Ready
		answers = append(answers, a)
		if len(missing) > 0 {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.instance })
			if len(missing) == 0 {
				time.AfterFunc(soon, cancel)
			}
		}
		return false
	})
	if errors.Is(err, gather.ErrNobody) {
		err = nil // no worker is connected
	}
	return answers, err
}

// askFor is how long workers have to answer a question while a request waits.
const askFor = 700 * time.Millisecond

// first makes all workers know their number before the first rate is set; while a rate is in force, they count.
func (c *count) first(ctx context.Context) error {
	if c.cfg.Gate.HasRate() {
		return nil
	}
	var answers []answer
	live, err := c.cfg.Live(ctx)
	if err == nil {
		answers, err = c.ask(ctx, askFor, live)
	}
	if err != nil {
		return unreachable(err)
	}
	c.tell(answers)
	return nil
}
