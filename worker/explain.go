package worker

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// maxExplained bounds the loads that a reply names.
const maxExplained = 16

// explains reports whether the caller asks where the IDs come from.
func explains(m *nats.Msg) bool {
	values := m.Header[subjects.HeaderExplain] // a nil map for most
	return len(values) == 1 && values[0] == "1"
}

// origins returns the headers that say where the ranges come from.
func (h *segmentHandler) origins(tag string, ranges []segment.Range) nats.Header {
	header := nats.Header{subjects.HeaderWorker: {h.cfg.Instance()}}
	for _, of := range ranges {
		for id := of.Start; id < of.End && len(header[subjects.HeaderLoad]) < maxExplained; {
			l, ok := segment.Loaded{}, false
			if h.cfg.Origin != nil {
				l, ok = h.cfg.Origin(tag, id)
			}
			if !ok {
				break
			}
			header.Add(subjects.HeaderLoad, strconv.FormatInt(l.Start, 10)+"-"+strconv.FormatInt(l.End-1, 10))
			header.Add(subjects.HeaderRevision, strconv.FormatUint(l.Write.Read, 10))
			id = l.End
		}
	}
	return header
}
