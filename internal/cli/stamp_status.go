package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

// stampRepairJSON is the outcome of `natsid stamp --repair`.
type stampRepairJSON struct {
	After   uint64 `json:"after"`   // the last message of the source that counts as copied
	Foreign uint64 `json:"foreign"` // messages of the target after its copy that are not from a stage
	Gone    uint64 `json:"gone"`    // messages after its copy that are missing in the target
	Changed bool   `json:"changed"` // false if there was nothing to repair
}

// repair shows where stages would continue after messages that are no copies, or are gone, and lets them if a user
// agrees.
func (c *stampCmd) repair(s *session, to *stage.Stream, st *stage.Stage) error {
	r, err := st.Plan(s.ctx)
	if err != nil {
		return err
	}
	out := stampRepairJSON{r.Position.Seq, r.Foreign, r.Gone, r.Foreign+r.Gone > 0}
	if !out.Changed {
		return s.print(out, func(w io.Writer) { fmt.Fprintf(w, "%s needs no repair\n", c.To) })
	}
	fmt.Fprintf(s.stderr, "The last known copy in %s is of message %d of %s. After it, up to message %d of %s, %d are "+
		"not from a stage, and %d are gone.\nIf a copy is gone, its original is copied again, with another ID.\n",
		c.To, out.After, c.From, r.Last, c.To, r.Foreign, r.Gone)
	switch {
	case !c.Yes && !isTerminal(os.Stdin):
		return errNoTerminal
	case !c.Yes && !s.asks(fmt.Sprintf("Is no copy gone, and shall stages continue after message %d?", out.After)):
		return errors.New("nothing was changed")
	}
	if err := to.SetHint(s.ctx, r.Hint); err != nil {
		return err
	}
	if _, _, err := st.Position(s.ctx); err != nil { // as of a copy of another stream
		return err
	}
	return s.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "stages to %s continue after message %d of %s\n", c.To, out.After, c.From)
	})
}

// stampStatusJSON is the output of `natsid stamp --status`.
type stampStatusJSON struct {
	Position uint64 `json:"position"` // the last message of the source that was copied or passed
	Behind   uint64 `json:"behind"`   // messages of the source that were not
	Copier   string `json:"copier"`   // host and process of the stage that copies; "" if none does
}

// status prints how far a source is copied, and by which stage.
func (c *stampCmd) status(s *session, js jetstream.JetStream, st *stage.Stage) error {
	position, behind, err := st.Position(s.ctx)
	if err != nil {
		return err
	}
	copier, err := stage.Copier(s.ctx, js, c.From, c.To)
	if err != nil {
		return err
	}
	return s.print(stampStatusJSON{position, behind, copier}, func(w io.Writer) {
		fmt.Fprintf(w, "%s to %s: message %d, %d behind, copied by %s\n", c.From, c.To, position, behind,
			cmp.Or(copier, "no stage"))
	})
}
