package cli

import (
	"fmt"
	"io"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

type tagDeleteCmd struct {
	Tag tagName `arg:""`
}

func (*tagDeleteCmd) help() help {
	return help{
		summary: "Stop serving a tag. Created again, it continues above its old IDs.",
		detail: `The IDs of the tag are never issued again: its mark is kept, and
"natsid tag create" continues from there. With --mysql the row stays as it is,
and Leaf nodes continue to use it.

Example:
  natsid tag delete order`,
		values: map[string]string{"tag": "The tag."},
	}
}

// Run implements the command.
func (c *tagDeleteCmd) Run(s *session) error {
	deleted := wire.TagDelete{Tag: string(c.Tag)}
	return operate(s, s.namespace().TagDelete(), deleted, func(out io.Writer, t subjects.TagInfo) {
		fmt.Fprintf(out, "%s: deleted; created again, it continues from %d\n", t.Tag, t.MaxID)
	})
}
