package cli

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/internal/configfile"
	"github.com/natsid/natsid/subjects"
)

type readCmd struct {
	Text string `arg:""`
	textFlags
	Tag     string `placeholder:"TAG"`
	Lenient bool
}

func (*readCmd) help() help {
	return help{
		summary: "Print the ID that a formatted text, such as SO-000042-4, stands for.",
		detail: `Prints the ID, or says where the text is wrong and why: it never guesses. It asks no
worker.

In a format {id:6} is the number with at least 6 digits, {check} finds typing
errors, {date:yyyyMMdd} is the day of a daily tag. {mask:k1:9} in place of {id}
hides the number, and so volume and order, with a key. Its file has 64 hexadecimal
digits: "openssl rand -hex 32 >k1.key".

Examples:
  natsid read --format 'SO-{date:yyyyMMdd}-{id:6}-{check}' SO-20261125-000042-4
  natsid read --format 'NO-{mask:k1:9}' --tag order --key k1=k1.key NO-620441183`,
		values: map[string]string{
			"text":    "The text, as natsid get segment --format prints it.",
			"format":  "The format of the text.",
			"tag":     "The tag of which the ID is; a mask depends on it.",
			"lenient": "In Crockford's base32, read o as 0, i and l as 1, and lower case as upper case.",
		},
	}
}

func (c *readCmd) Run(s *session) error {
	var opts []format.Option
	if c.Lenient {
		opts = append(opts, format.Lenient())
	}
	f, err := c.textFlags.parse(c.Tag, opts...)
	if err != nil {
		return err
	}
	id, err := f.Read(c.Text)
	if _, wrong := errors.AsType[*format.ReadError](err); wrong {
		err = fmt.Errorf("%q is no text of %s: %w", c.Text, f, err)
	}
	if err != nil {
		return err
	}
	return s.print(idJSON{id}, func(out *sheet) { out.line("%d", id) })
}

// idJSON is the output of a command that prints one ID.
type idJSON struct {
	ID subjects.ID `json:"id"`
}

// textFlags are the flags of commands that write IDs as formatted text, or read IDs from it.
type textFlags struct {
	Format string            `placeholder:"FORMAT"`
	Key    map[string]string `placeholder:"NAME=FILE" mapsep:"none"`
}

// parse returns the format of --format for IDs of a tag. No error shows the content of a key file.
func (c textFlags) parse(tag string, opts ...format.Option) (*format.Format, error) {
	if c.Format == "" {
		return nil, usage(errors.New("--format is missing: an ID is written and read by one, such as {id:6}{check}"))
	}
	keys := make(map[string][]byte)
	for name, path := range c.Key {
		text, err := configfile.Secret(path)
		if err != nil {
			return nil, fmt.Errorf("read the key %s: %w", name, err)
		}
		if keys[name], err = hex.DecodeString(strings.TrimSpace(text)); err != nil {
			return nil, fmt.Errorf("read the key %s: %s is not hexadecimal digits", name, path)
		}
	}
	f, err := format.Parse(c.Format, append(opts, format.Keys(tag, keys))...)
	if err != nil {
		return nil, usage(err)
	}
	return f, nil
}
