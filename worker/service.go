package worker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/natsid/natsid/internal/wire"
)

// A service shows the worker in `nats micro`: it answers on $SRV.PING, $SRV.INFO and $SRV.STATS with the types of
// package micro. It replaces [micro.Service], which cannot say how many requests wait. It also shows endpoints whose
// groups are out; the metadata says which modes are ready.
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

// stats returns the figures of the endpoint. The processing time of a request ends with its answer, and includes the
// time that it was parked.
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
