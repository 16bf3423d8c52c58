package worker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A service shows the worker in `nats micro`: it answers on $SRV.PING, $SRV.INFO and $SRV.STATS with the types of
// package micro. [micro.Service] is not used, since it does not tell how many requests wait. Endpoints whose groups
// are out are shown, too; the metadata says which modes are ready.
type service struct {
	link      *link
	identity  micro.ServiceIdentity
	endpoints []*endpoint
	stats     *statistics
	began     time.Time // when it began to answer on this connection
}

// newIdentity returns the identity of a service, with a random ID. The process uses it until it ends.
func newIdentity(name, version string) micro.ServiceIdentity {
	return micro.ServiceIdentity{Name: name, ID: rand.Text()[:22], Version: version, Metadata: map[string]string{}}
}

// listen subscribes to the questions to all services, to the services of the namespace, and to this one.
func (s *service) listen() (subs []*nats.Subscription, err error) {
	s.began = time.Now().UTC()
	for verb, answer := range map[micro.Verb]func() ([]byte, error){
		micro.PingVerb: func() ([]byte, error) {
			return json.Marshal(micro.Ping{ServiceIdentity: s.who(), Type: micro.PingResponseType})
		},
		micro.InfoVerb:  func() ([]byte, error) { return json.Marshal(s.info()) },
		micro.StatsVerb: func() ([]byte, error) { return json.Marshal(s.statsOf()) },
	} {
		of := "$SRV." + verb.String()
		name := of + "." + s.identity.Name
		for _, subject := range []string{of, name, name + "." + s.identity.ID} {
			sub, err := s.link.conn.Subscribe(subject, func(m *nats.Msg) { s.respond(m, answer) })
			if err != nil {
				return subs, fmt.Errorf("worker: %s: %w", subject, err)
			}
			subs = append(subs, sub)
		}
	}
	return subs, nil
}

func (s *service) respond(m *nats.Msg, answer func() ([]byte, error)) {
	body, err := answer()
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		s.link.Log.Warn("`nats micro` gets no answer", "subject", m.Subject, "error", err)
	}
}

// who returns the identity of the service, with the state of the worker.
func (s *service) who() micro.ServiceIdentity {
	who := s.identity
	who.Metadata = s.link.State()
	return who
}

func (s *service) info() micro.Info {
	info := micro.Info{
		ServiceIdentity: s.who(), Type: micro.InfoResponseType,
		Description: "IDs of tags, from ranges; and IDs from time, worker number and sequence",
	}
	for _, e := range s.endpoints {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.name, Subject: e.subject, QueueGroup: wire.QueueGroup,
		})
	}
	return info
}

// statsOf returns the statistics of all endpoints, with the busiest tags in the data of the segment endpoint.
func (s *service) statsOf() micro.Stats {
	stats := micro.Stats{ServiceIdentity: s.who(), Type: micro.StatsResponseType, Started: s.began}
	for _, e := range s.endpoints {
		one := e.figures.stats()
		one.Name, one.Subject, one.QueueGroup = e.name, e.subject, wire.QueueGroup
		if e.name == wire.SegmentEndpoint {
			one.Data, _ = json.Marshal(s.stats.with(wire.MaxBusiest)) // cannot fail: texts and numbers
		}
		stats.Endpoints = append(stats.Endpoints, one)
	}
	return stats
}

// stats returns the figures of the endpoint. The processing time of a request lasts until its answer, parked or not.
func (t *tally) stats() *micro.EndpointStats {
	s := &micro.EndpointStats{
		NumRequests: int(t.requests.Load()), NumErrors: int(t.errors.Load()),
		ProcessingTime: time.Duration(t.took.Load()),
	}
	if e := t.last.Load(); e != nil {
		s.LastError = e.Code.String() + ":" + e.Text
	}
	s.AverageProcessingTime = s.ProcessingTime / time.Duration(max(1, s.NumRequests))
	return s
}

// Statistics are computed on demand, and then reused for statsEvery, or for statsEveryTag per tag if that is longer. A
// tag takes about 0.25 us, so statistics take at most 1/400 of a CPU, however often they are requested. With 100,000
// tags they are up to 10 s old.
const (
	statsEvery    = 10 * time.Millisecond
	statsEveryTag = 100 * time.Microsecond
)

// A statistics caches the figures of tags for $SRV.STATS. It is safe for concurrent use.
type statistics struct {
	cfg *Config

	mu     sync.Mutex
	latest wire.WorkerStats
	until  time.Time // when latest becomes too old; zero while there is none
}

// with returns the statistics of the worker, with at most the given number of tags in Busiest.
func (s *statistics) with(tags int) wire.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().After(s.until) {
		s.latest = s.worker()
		s.until = time.Now().Add(max(statsEvery, time.Duration(s.latest.Tags)*statsEveryTag))
	}
	w := s.latest
	w.Busiest = w.Busiest[:min(len(w.Busiest), tags)]
	return w
}

// Stats returns totals over the worker's tags, and the statistics of the busiest tags, at most the given number. They
// are up to 10 ms old, or 0.1 ms per tag if that is longer. It is safe for concurrent use.
func (w *Worker) Stats(tags int) wire.WorkerStats { return w.stats.with(tags) }

// StatsOf returns the statistics of a tag, nil if nothing of it is in memory. It is safe for concurrent use.
func (w *Worker) StatsOf(tag string) *wire.TagStats { return w.cfg.statsOf(tag) }

func (cfg *Config) statsOf(tag string) *wire.TagStats {
	s, ok := cfg.Segments.StatsOf(tag)
	if !ok {
		return nil
	}
	return new(tagStats(cfg.Instance(), s))
}

func (s *statistics) worker() wire.WorkerStats {
	total, busiest := s.cfg.Segments.Busiest(wire.MaxBusiest)
	w := wire.WorkerStats{
		Instance: s.cfg.Instance(), At: time.Now().UTC(), Tags: total.Tags,
		IDsPerSecond: wire.Fraction(total.Speed), SecondsLeft: wire.Fraction(total.SecondsLeft),
		Waiting: total.Waiting, Waits: total.Waits, Loads: total.Loads, Errors: total.Errors,
		Busiest: make([]wire.TagStats, len(busiest)),
	}
	if number, held, _ := s.cfg.Number(); held {
		w.Number = &number
	}
	for i, t := range busiest {
		w.Busiest[i] = tagStats(w.Instance, t)
	}
	return w
}

func tagStats(instance string, t segment.TagStats) wire.TagStats {
	s := wire.TagStats{
		Tag: t.Tag, Worker: instance, IDsPerSecond: wire.Fraction(t.Speed),
		Left: t.Left, SecondsLeft: wire.Fraction(t.SecondsLeft),
		Step: t.Configured, NextStep: t.Step, RecommendedStep: t.Recommended,
		Loads: t.Loads, Errors: t.Errors, Failing: t.LastError != nil,
		Waits: t.Waits, Waiting: t.Waiting,
	}
	for _, r := range t.Ranges[:min(len(t.Ranges), wire.MaxRanges)] {
		s.Ranges = append(s.Ranges, wire.TagRange{
			First: subjects.ID(r.First), Next: subjects.ID(r.Next), Last: subjects.ID(r.Last),
			Current: r.Current,
		})
	}
	return s
}
