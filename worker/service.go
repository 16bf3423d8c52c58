package worker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/subjects"
)

// A service is what `nats micro` shows of groups: their endpoints while they
// stand. It answers on the subjects $SRV.*, in the words of package micro, whose
// own services cannot say how many requests wait. Only the goroutine of
// [Worker.Run] puts it up and down.
type service struct {
	link        *link
	identity    micro.ServiceIdentity
	description string
	groups      []*group
	always      bool                                        // it is shown without endpoints, too
	data        func(e *endpoint, tags int) json.RawMessage // shown with the statistics of an endpoint; may be nil

	shown atomic.Pointer[[]*endpoint]
	began time.Time            // when it was put up on this connection
	subs  []*nats.Subscription // nil while down
}

// newIdentity returns the identity of a service, which it keeps for as long as the process lives.
func newIdentity(name, version string) micro.ServiceIdentity {
	return micro.ServiceIdentity{Name: name, ID: rand.Text()[:22], Version: version, Metadata: map[string]string{}}
}

func newService(l *link, who micro.ServiceIdentity, description string, groups ...*group) *service {
	s := &service{link: l, description: description, groups: groups, identity: who}
	s.shown.Store(new([]*endpoint))
	return s
}

// follow shows the endpoints of the groups that stand.
func (s *service) follow() error {
	shown := []*endpoint{}
	for _, g := range s.groups {
		if g.isShown() {
			shown = append(shown, g.endpoints...)
			shown = slices.DeleteFunc(shown, func(e *endpoint) bool { return e.name == standbyEndpoint })
		}
	}
	s.shown.Store(&shown)
	if s.always || len(shown) > 0 {
		return s.join()
	}
	s.leave()
	return nil
}

// join subscribes to the subjects of the service, or to none and returns an
// error.
func (s *service) join() error {
	if s.subs != nil {
		return nil
	}
	if s.began.IsZero() {
		s.began = time.Now().UTC()
	}
	for verb, answer := range map[micro.Verb]func() ([]byte, error){
		micro.PingVerb: func() ([]byte, error) {
			return json.Marshal(micro.Ping{ServiceIdentity: s.who(), Type: micro.PingResponseType})
		},
		micro.InfoVerb:  func() ([]byte, error) { return json.Marshal(s.info()) },
		micro.StatsVerb: s.statsThatFit,
	} {
		for _, who := range [][2]string{{"", ""}, {s.identity.Name, ""}, {s.identity.Name, s.identity.ID}} {
			subject, err := micro.ControlSubject(verb, who[0], who[1])
			if err == nil {
				err = s.listen(subject, answer)
			}
			if err != nil {
				s.leave()
				return fmt.Errorf("worker: service %s: %w", s.identity.Name, err)
			}
		}
	}
	return nil
}

// listen answers on a subject.
func (s *service) listen(subject string, answer func() ([]byte, error)) error {
	sub, err := s.link.conn.Subscribe(subject, func(m *nats.Msg) {
		body, err := answer()
		if err == nil {
			err = m.Respond(body)
		}
		if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
			s.link.Log.Warn("`nats micro` gets no answer", "subject", subject, "error", err)
		}
	})
	if err == nil {
		s.subs = append(s.subs, sub)
	}
	return err
}

func (s *service) leave() {
	drain(s.link.Log, s.subs)
	s.subs = nil
}

// who returns the identity of the service, with what the worker says of itself.
func (s *service) who() micro.ServiceIdentity {
	who := s.identity
	if s.always && s.link.State != nil {
		who.Metadata = s.link.State()
	}
	return who
}

func (s *service) info() micro.Info {
	info := micro.Info{
		ServiceIdentity: s.who(), Type: micro.InfoResponseType, Description: s.description,
		Endpoints: []micro.EndpointInfo{},
	}
	for _, e := range *s.shown.Load() {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.name, Subject: e.subject, QueueGroup: subjects.QueueGroup,
		})
	}
	return info
}

// statsThatFit returns the statistics in JSON: with fewer tags, and then with fewer
// endpoints, where the NATS server does not accept so much.
func (s *service) statsThatFit() (body []byte, err error) {
	for tags := subjects.MaxBusiest; ; tags /= 2 {
		stats := s.stats(tags)
		for {
			body, err = json.Marshal(stats)
			if err != nil || len(body) <= int(s.link.conn.MaxPayload()) {
				return body, err
			}
			if tags > 0 || len(stats.Endpoints) < 2 {
				break
			}
			stats.Endpoints = stats.Endpoints[:len(stats.Endpoints)-1]
		}
		if tags == 0 {
			return body, nil // which the connection refuses
		}
	}
}

// stats returns the statistics, with those of so many tags.
func (s *service) stats(tags int) micro.Stats {
	stats := micro.Stats{
		ServiceIdentity: s.who(), Type: micro.StatsResponseType, Started: s.began,
		Endpoints: []*micro.EndpointStats{},
	}
	for _, e := range *s.shown.Load() {
		one := e.stats()
		one.Name, one.Subject, one.QueueGroup = e.name, e.subject, subjects.QueueGroup
		if s.data != nil {
			one.Data = s.data(e, tags)
		}
		stats.Endpoints = append(stats.Endpoints, one)
	}
	return stats
}

// stats returns the counts of this connection and of those before, in the words of package micro. The time of
// processing is that until the answer, parked or not.
func (e *endpoint) stats() *micro.EndpointStats {
	s := &micro.EndpointStats{}
	for _, t := range []*tally{e.before, &e.counts} {
		s.NumRequests += int(t.answered.Load() - t.none.Load())
		s.NumErrors += int(t.errors.Load())
		s.ProcessingTime += time.Duration(t.took.Load())
		if e := t.last.Load(); e != nil {
			s.LastError = e.Code.String() + ":" + e.Text
		}
	}
	s.AverageProcessingTime = s.ProcessingTime / time.Duration(max(1, s.NumRequests))
	return s
}
