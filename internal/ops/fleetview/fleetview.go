// Package fleetview lets every worker see the state of all workers; it is internal to natsid and may change.
//
// Each worker answers questions about its state on one subject ([Answer]). Pages ask through a [Fleet], which keeps
// the answers for about two seconds: however many people look, each worker is asked once in that time, and no worker is
// asked while no page is open. [Snapshot.Overview] returns the fleet as people read it.
//
// Uniqueness does not depend on this package: it only reads.
package fleetview

import (
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// Answer subscribes to questions about this worker, and replies to each with the result of view, which must not block.
func Answer(
	nc *nats.Conn, ns subjects.Namespace, log *slog.Logger, view func(wire.ViewRequest) wire.WorkerView,
) (*nats.Subscription, error) {
	return nc.Subscribe(wire.View(ns), func(m *nats.Msg) {
		var asked wire.ViewRequest
		if !isInbox(ns, m.Reply) || json.Unmarshal(m.Data, &asked) != nil {
			return
		}
		if err := m.Respond(encode(view(asked), int(nc.MaxPayload()))); err != nil {
			log.Debug("a question how this worker is was not answered", "error", err)
		}
	})
}

// isInbox reports whether a reply subject is an inbox. An answer is published with the worker's rights: on a reply
// subject such as id.tag.changed or $KV.id_segments.order it would pass for a message of the worker.
func isInbox(ns subjects.Namespace, reply string) bool {
	return reply != "" && !strings.HasPrefix(reply, string(ns)+".") && !strings.Contains("."+reply, ".$")
}

// encode returns a view as JSON. It drops stages until the JSON fits into a message, of as many bytes as most says.
func encode(v wire.WorkerView, most int) []byte {
	for {
		body, err := json.Marshal(v)
		if err != nil {
			panic(err) // cannot be: texts, numbers and times
		}
		if len(body) <= most || len(v.Stages) == 0 {
			return body
		}
		v.Stages = v.Stages[:len(v.Stages)/2]
	}
}
