package cli

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// help is the text of a command's "--help". It is in code, so that the tags of a command's struct hold no prose.
type help struct {
	summary string            // one line
	detail  string            // below it; indented lines are kept as they are
	values  map[string]string // its arguments and flags, by name
}

// A helper is a command, or a group of commands.
type helper interface{ help() help }

// addHelp gives the commands at and below a node their help. It returns an
// error if a command, flag or argument has none.
func addHelp(n *kong.Node) error {
	h := n.Target.Addr().Interface().(helper).help()
	n.Help, n.Detail = h.summary, h.detail
	for _, v := range n.Values() {
		if text, ok := h.values[v.Name]; ok {
			v.Help, v.OrigHelp = text, text
		}
		if v.Help == "" {
			return fmt.Errorf("no help for %s of %q", v.Name, n.Path())
		}
	}
	for _, child := range n.Children {
		if err := addHelp(child); err != nil {
			return err
		}
	}
	return nil
}
