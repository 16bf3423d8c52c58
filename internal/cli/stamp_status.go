package cli

import (
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

// stampStatusJSON is the output of `natsid stamp --status`.
type stampStatusJSON struct {
	From     string         `json:"from"`
	To       string         `json:"to"`
	Position uint64         `json:"position"` // the last message of the source that was copied or passed
	Behind   uint64         `json:"behind"`   // messages of the source that were not
	Stages   []stampingJSON `json:"stages"`
}

type stampingJSON struct {
	Name string     `json:"name"` // host and process
	Role stage.Role `json:"role"` // copying or standby
}

// status prints how far a source is copied, and by which stages.
func (c *stampCmd) status(s *session, js jetstream.JetStream, st *stage.Stage) error {
	position, behind, err := st.Position(s.ctx)
	if err != nil {
		return err
	}
	members, err := stage.Members(s.ctx, js, c.From, c.To)
	if err != nil {
		return err
	}
	out := stampStatusJSON{c.From, c.To, position, behind, []stampingJSON{}}
	for _, m := range members {
		out.Stages = append(out.Stages, stampingJSON{m.Name, m.Role})
	}
	return s.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s to %s: message %d, %d behind\n", c.From, c.To, position, behind)
		for _, m := range out.Stages {
			fmt.Fprintf(w, "%s\t%s\n", m.Name, m.Role)
		}
		if len(out.Stages) == 0 {
			fmt.Fprintln(w, "no stage runs")
		}
	})
}
