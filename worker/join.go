package worker

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/snowflake"
)

const (
	// leaveAhead is how long before the end of its window a worker leaves the
	// queue group, so that it refuses hardly any request delivered to it.
	leaveAhead = 200 * time.Millisecond
	// pingTimeout is how long the server may take to answer before the
	// connection counts as lost.
	pingTimeout = time.Second
)

// A snowflakes keeps the snowflake service up while snowflakes can be issued,
// and only then: callers reach other workers, or learn from NATS at once that
// there are none. It goes up once the worker answers for its number, so that no
// ID is issued under a number that looks free. Only the goroutine of
// [Worker.Run] uses it, but for why.
type snowflakes struct {
	cfg      *Config
	identity *identity
	service  func() service
	running  micro.Service // nil while down
	known    bool          // the server knows that it is up

	mu      sync.Mutex
	trouble error // why snowflakes are not served; nil while they are
}

func newSnowflakes(cfg *Config, identity *identity, service func() service) *snowflakes {
	return &snowflakes{cfg: cfg, identity: identity, service: service, trouble: snowflake.ErrNoNumber}
}

// why returns why snowflakes are not served, or nil while they are. It is safe
// for concurrent use.
func (s *snowflakes) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// follow puts the service up or down if it is time.
func (s *snowflakes) follow() {
	// Join when the next request need not wait; stay while it need not fail.
	patience := time.Duration(0)
	if s.running != nil {
		patience = s.cfg.Deadline
	}
	trouble := s.cfg.refused(Snowflake)
	if trouble == nil {
		trouble = s.cfg.Snowflakes.Ready(patience, leaveAhead)
	}
	// The generator in use may be younger than the last look at the number.
	if trouble == nil && s.running == nil {
		trouble = s.identity.follow()
	}
	if up := s.running != nil; (trouble == nil) != up || up && !s.known {
		trouble = s.change(trouble)
	}
	s.mu.Lock()
	s.trouble = trouble
	s.mu.Unlock()
}

// change puts the service up if there is no trouble, else down, and returns why
// it does not serve.
func (s *snowflakes) change(trouble error) error {
	lost := s.cfg.Conn.FlushTimeout(pingTimeout)
	switch {
	case lost != nil && trouble != nil:
		return trouble
	case lost != nil:
		return fmt.Errorf("worker: the NATS server does not answer: %w", lost)
	case trouble != nil:
		s.cfg.Log.Warn("no longer serving snowflakes", "reason", trouble)
		s.down()
		return trouble
	case s.running == nil:
		if err := s.up(); err != nil {
			return err
		}
	}
	s.known = true
	s.cfg.Log.Info("serving snowflakes")
	return nil
}

// up puts the service up. It returns nil once the server knows all
// subscriptions, those of segments too.
func (s *snowflakes) up() (err error) {
	s.known = false
	if s.running, err = s.service().start(s.cfg); err != nil {
		s.cfg.Log.Error("cannot serve snowflakes yet; trying again, while other workers answer", "error", err)
		return err
	}
	return s.cfg.Conn.FlushTimeout(pingTimeout)
}

// down leaves the queue group. What has been delivered is still answered.
func (s *snowflakes) down() {
	if s.running != nil {
		stopService(s.running, s.cfg.Log)
		s.running = nil
	}
}
