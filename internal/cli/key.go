package cli

import (
	"fmt"
	"io"

	"github.com/natsid/natsid/format"
)

type keyCmd struct {
	New keyNewCmd `cmd:""`
}

func (*keyCmd) help() help { return help{summary: "Manage keys of masks."} }

type keyNewCmd struct {
	Name string `arg:""`
	File string `arg:""`
}

func (*keyNewCmd) help() help {
	return help{
		summary: "Make a key, under which formats with {mask:NAME:WIDTH} hide volume and order.",
		detail: `Writes a new file that you alone can read, and prints name and fingerprint of the
key. Keep the file: no text can be read without it. Give it to every program that
writes or reads texts; it is never sent to a worker.

A mask hides volume and order; it is not encryption of content, and a width below
32 bits can be searched. Give each tag a key of its own.

Example:
  natsid key new k1 k1.key
  natsid get segment so --format 'SO-{mask:k1:9}-{check}' --key k1.key`,
		values: map[string]string{
			"name": "The name that formats call it: 1 to 32 of a-z, 0-9 and '-'.",
			"file": "The file to write, which must not exist.",
		},
	}
}

// Run implements the command.
func (c *keyNewCmd) Run(s *session) error {
	k, err := format.NewKey(c.Name)
	if err != nil {
		return usage(err)
	}
	if err := k.WriteFile(c.File); err != nil {
		return err
	}
	made := keyJSON{k.Name(), k.Fingerprint()}
	return s.print(made, func(out io.Writer) { fmt.Fprintln(out, made.Name, made.Fingerprint) })
}

// keyJSON is the output of a command that makes a key.
type keyJSON struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
}

// keyFlags are the flags of commands that write or read texts.
type keyFlags struct {
	Key []string `placeholder:"FILE" sep:"none"`
}

const keyHelp = "A key of the format, in a file of `natsid key new`. Repeatable."

// read reads the keys, and warns of files that others can read.
func (f keyFlags) read(s *session) (format.Option, error) {
	var keys []format.Key
	for _, path := range f.Key {
		k, warning, err := format.ReadKeyFile(path)
		if err != nil {
			return nil, err
		}
		if warning != "" {
			fmt.Fprintf(s.stderr, "natsid: %s\n", warning)
		}
		keys = append(keys, k)
	}
	return format.Keys(keys...), nil
}
