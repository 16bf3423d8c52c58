package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

// stampRepairJSON is the outcome of `natsid stamp --repair`.
type stampRepairJSON struct {
	After   uint64   `json:"after"`   // the last message of the source that counts as copied
	Gone    uint64   `json:"gone"`    // messages after the last copy that are missing in the target
	Foreign []uint64 `json:"foreign"` // messages after it that are not from a stage
	Changed bool     `json:"changed"` // false if there was nothing to repair
}

// repair shows how a stage continues after messages that were removed from the target, and lets it, if a user agrees.
func (c *stampCmd) repair(s *session, st *stage.Stage) error {
	r, err := st.Plan(s.ctx)
	if err != nil {
		return err
	}
	out := stampRepairJSON{r.After.Seq, r.Gone, slices.Concat([]uint64{}, r.Foreign), false}
	if r.Gone == 0 {
		return s.print(out, func(w io.Writer) { fmt.Fprintf(w, "%s needs no repair\n", c.To) })
	}
	fmt.Fprintf(s.stderr, "%s ends with message %d; the last copy is of message %d of %s. Missing after it: %s.\n"+
		"If a copy is missing, its original is copied again, with another ID.\n",
		c.To, r.Last, r.After.Seq, c.From, numberOf(int(r.Gone), "message"))
	if n := len(r.Foreign); n > 0 {
		fmt.Fprintf(s.stderr, "Not from a stage: %s. Remove with `%s`\n", numberOf(n, "message"), r.Remove(c.To))
	}
	question := fmt.Sprintf("Is no copy missing, and shall stages continue with message %d of %s?",
		r.After.Seq+1, c.From)
	switch {
	case !c.Yes && !isTerminal(os.Stdin):
		return errNoTerminal
	case !c.Yes && !s.asks(question):
		return errors.New("nothing was changed")
	}
	if err := st.Repair(s.ctx, r); err != nil {
		return err
	}
	out.Changed = true
	return s.print(out, func(w io.Writer) {
		fmt.Fprintf(w, "stages of %s continue with message %d of %s\n", c.To, r.After.Seq+1, c.From)
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
