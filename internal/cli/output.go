package cli

import (
	"encoding/json"
	"io"

	"github.com/natsid/natsid/subjects"
)

// An Output is what a command prints with --json.
type Output struct {
	Command string // without "natsid"
	Value   any    // of the type that is printed
}

// Outputs returns what all commands print with --json. docs/reference.md shows it.
func Outputs() []Output {
	return []Output{
		{"serve", readyJSON{}},
		{"get segment", idsJSON{}}, {"get snowflake", idsJSON{}},
		{"throttle", subjects.Throttles{}},
		{"tag create", subjects.TagInfo{}}, {"tag update", subjects.TagInfo{}}, {"tag delete", subjects.TagInfo{}},
		{"tag list", []subjects.TagInfo{}}, {"tag list --stats", []subjects.WorkerStats{}},
		{"store show", storeJSON{}}, {"store move", movedJSON{}},
		{"registry", []registryJSON{}}, {"resume", resumeJSON{}},
		{"explain", explainedJSON{}}, {"audit", auditJSON{}},
		{"workers", []workerRow{}}, {"drain", subjects.WorkerDrained{}},
		{"health", healthJSON{}},
		{"stamp", stampJSON{}},
		{"bench segment", benchReport{}}, {"bench snowflake", benchReport{}},
		{"decode", partsJSON{}}, {"layout", layoutJSON{}},
		{"permissions", rightsJSON{}}, {"config", []valueJSON{}}, {"version", versionJSON{}},
	}
}

// print prints the outcome of a command: value as JSON on one line with --json, and what text writes without. Both go
// to standard output; all else that is said goes to standard error.
func (s *session) print(value any, text func(out io.Writer) error) error {
	if !s.line.JSON {
		return text(s.stdout)
	}
	out := json.NewEncoder(s.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(value)
}
