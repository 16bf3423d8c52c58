package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
