package cli

import (
	"fmt"
	"io"

	"github.com/natsid/natsid/internal/stage"
)

// stampStatusJSON is the output of `natsid stamp --status` and `natsid stamp --repair`.
type stampStatusJSON struct {
	Position uint64 `json:"position"` // the last message of the source that was copied or passed
	Behind   uint64 `json:"behind"`   // messages of the source that were not
	Foreign  uint64 `json:"foreign"`  // messages at the target's end that are not from a stage
	Gone     uint64 `json:"gone"`     // messages at the target's end that it does not hold
}

// status prints how far a source is copied. With --repair it lets stages continue after messages
// that are no copies, or are gone, if a user agrees.
func (c *stampCmd) status(s *session, to *stage.Stream, st *stage.Stage) error {
	r, err := st.Status(s.ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s to %s: message %d, %d behind", c.From, c.To, r.Position.Seq, r.Behind)
	if r.Foreign+r.Gone > 0 {
		text += fmt.Sprintf("\n%s ends with %s not from a stage, and %s gone",
			c.To, numberOf(int(r.Foreign), "message"), numberOf(int(r.Gone), "message"))
		if c.Repair {
			fmt.Fprintf(s.stderr, "%s\nIf a copy is gone, its original is copied again, with another ID.\n", text)
			if err := s.agree(c.Yes, "Is no copy gone, and shall stages continue?"); err != nil {
				return err
			}
			if err := to.SetHint(s.ctx, r.Hint); err != nil {
				return err
			}
		}
	}
	return s.print(stampStatusJSON{r.Position.Seq, r.Behind, r.Foreign, r.Gone}, func(w io.Writer) {
		fmt.Fprintln(w, text)
	})
}
