package cli

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/natsid/natsid/internal/ops/grants"
)

// report writes the outcome of an audit to a file, as a text that a person can file and as JSON.
func (c *auditCmd) report(s *session, r *grants.Reader, out *auditJSON) error {
	var text bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("Audit of the IDs that natsid granted\n")
	line("made        %s UTC, by natsid %s", instant(time.Now()), version())
	line("namespace   %s, tags: %s", s.namespace(), cmp.Or(c.Tag, "all"))
	line("stream      entries %d to %d, since %s UTC", r.First, r.Last, instant(out.From))
	line("checksum    sha256:%x of the entries that were read, decoded", c.sum.Sum(nil))
	line("\nOutcome\n")
	out.print(&text)
	line("\nNot covered\n")
	line("- IDs that were granted before the first entry, or after the last.")
	line("- IDs that other programs issued, as Leaf does from the same table, and IDs of other namespaces.")
	line("- IDs that a service changed after it received them, or used more than once by itself.")
	line("- Workers that were started without the record of grants (--grants).")
	if lost := out.Lost + out.Missing + uint64(out.Unreadable); lost > 0 {
		line("- %d grants and entries that are missing or cannot be read; of which tags, the outcome says.", lost)
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	line("\nThe same as JSON\n\n%s\n", data)
	line("sha256:%x of all lines above", sha256.Sum256(text.Bytes()))
	if err := os.WriteFile(c.Report, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("the report was not written: %w", err)
	}
	return nil
}
