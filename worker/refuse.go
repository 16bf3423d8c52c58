package worker

import (
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/subjects"
)

// refused returns why a mode must not be served at the moment, as it crosses the
// wire, or nil. It allocates nothing unless the mode is refused.
func (cfg *Config) refused(mode Mode) error {
	if cfg.Refused == nil {
		return nil
	}
	if why := cfg.Refused(mode); why != nil {
		return subjects.Errorf(subjects.Unavailable, "%v", why)
	}
	return nil
}

// A standing keeps the service of segments and tags up from start to stop, but
// for the endpoints of modes that are refused: callers reach other workers. A
// service cannot drop one endpoint, so another one takes its place. Only the
// goroutine of [Worker.Run] uses it.
type standing struct {
	cfg     *Config
	service func(modes) service
	running micro.Service
	serves  modes // of running
}

// modes says which of the standing endpoints are up.
type modes struct{ segments, tags bool }

// wanted returns what may be served now.
func (s *standing) wanted() modes {
	return modes{segments: s.cfg.refused(Segment) == nil, tags: s.cfg.refused(Tags) == nil}
}

// up puts the service up.
func (s *standing) up() (err error) {
	s.serves = s.wanted()
	s.running, err = s.service(s.serves).start(s.cfg)
	return err
}

// follow leaves and joins the queue groups as modes are refused and allowed. It
// needs a server that answers, for the reason in the package comment; until then
// each request is refused when it arrives.
func (s *standing) follow() {
	serves := s.wanted()
	if serves == s.serves || s.cfg.Conn.FlushTimeout(pingTimeout) != nil {
		return
	}
	next, err := s.service(serves).start(s.cfg)
	if err != nil {
		s.cfg.Log.Error("the endpoints cannot be changed; trying again, while requests are answered as they must be",
			"error", err)
		return
	}
	stopService(s.running, s.cfg.Log)
	s.running, s.serves = next, serves
	s.cfg.Log.Info("the endpoints have changed", "segments", serves.segments, "tags", serves.tags)
}

func (s *standing) down() { stopService(s.running, s.cfg.Log) }
