package cli

import (
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
)

type tagDeleteCmd struct {
	Tag tagName `arg:""`
	consent
}

func (*tagDeleteCmd) help() help {
	return help{
		summary: "Stop serving a tag. Created again, it continues above its old IDs.",
		detail: `The IDs of the tag are never issued again: its mark is kept, and
"natsid tag create" continues from there. With --mysql the row stays as it is,
and Leaf nodes continue to use it.

Examples:
  natsid tag delete order
  natsid tag delete order --yes`,
	}
}

func (c *tagDeleteCmd) Run(s *session) error {
	return s.changeTags(c.consent, string(c.Tag), "Delete", func(nc *nats.Conn, tag string) error {
		return s.tell(nc, s.namespace().TagDelete(), wire.TagDelete{Tag: tag})
	})
}
