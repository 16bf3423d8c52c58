package worker

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/subjects"
)

// An endpoint is a subject on which one worker of the queue group answers each
// request. handle must not block: it delays all requests of the endpoint.
type endpoint struct {
	name    string // in `nats micro`
	subject string
	handle  micro.HandlerFunc
}

// A service is the endpoints that a worker puts up and takes down together, in
// the queue group [subjects.QueueGroup]. Taking it down routes callers to other
// workers; what has been delivered is still answered.
//
// Beside its services a worker has two subscriptions in no queue group: changes
// for as long as it runs, and identity while it holds a worker number.
type service struct {
	name, description string
	stats             micro.StatsHandler // nil for none
	endpoints         []endpoint
}

// segmentService stands from start to stop, with the endpoints of what may be
// served. Each call makes new handlers, as with snowflakes.
func (w *Worker) segmentService(may modes) service {
	ns, admin := w.cfg.Namespace, newTagAdmin(&w.cfg, w.gate)
	var endpoints []endpoint
	if may.segments {
		endpoints = append(endpoints,
			endpoint{subjects.SegmentEndpoint, ns.Segments(), newSegmentHandler(&w.cfg, w.gate).handle})
	}
	if may.tags {
		endpoints = append(endpoints,
			endpoint{"tag-create", ns.TagCreate(), admin.handler(admin.create)},
			endpoint{"tag-update", ns.TagUpdate(), admin.handler(admin.update)},
			endpoint{"tag-raise", ns.TagRaise(), admin.handler(admin.raise)},
			endpoint{"tag-delete", ns.TagDelete(), admin.handler(admin.remove)},
			endpoint{"tag-list", ns.TagList(), admin.handler(admin.list)})
	}
	return service{
		name: ns.SegmentService(), description: "IDs of tags, from ranges", stats: w.stats.of, endpoints: endpoints,
	}
}

// snowflakeService stands while snowflakes can be issued. Each call makes new
// handlers, since those of a service that was taken down may still be at work.
func (w *Worker) snowflakeService() service {
	ns := w.cfg.Namespace
	return service{
		name: ns.SnowflakeService(), description: "IDs from time, worker number and sequence",
		// One handler each: subscriptions run concurrently.
		endpoints: []endpoint{
			{"snowflake", ns.Snowflake(), newSnowflakeHandler(&w.cfg, w.gate).handle},
			{"business", ns.Snowflakes(), newSnowflakeHandler(&w.cfg, w.gate).handle},
		},
	}
}

// start puts the service up: all of its endpoints, or none and an error.
func (s service) start(cfg *Config) (micro.Service, error) {
	up, err := micro.AddService(cfg.Conn, micro.Config{
		Name: s.name, Version: cfg.Version, Description: s.description,
		QueueGroup: subjects.QueueGroup, StatsHandler: s.stats,
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			cfg.Log.Error("the NATS client reports an error", "service", s.name,
				"subject", err.Subject, "error", err.Description)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: service %s: %w", s.name, err)
	}
	for _, e := range s.endpoints {
		if err := up.AddEndpoint(e.name, e.handle, micro.WithEndpointSubject(e.subject)); err != nil {
			stopService(up, cfg.Log)
			return nil, fmt.Errorf("worker: endpoint %s: %w", e.subject, err)
		}
	}
	return up, nil
}

func stopService(up micro.Service, log *slog.Logger) {
	if err := up.Stop(); err != nil {
		log.Warn("a service did not stop cleanly", "service", up.Info().Name, "error", err)
	}
}
