package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
)

// misspelt returns an error that suggests a command if args begin with a word that is no command of n, or if
// refused, the error of the parser, is about such a word further back. Otherwise it returns nil.
func misspelt(n *kong.Node, args []string, refused error) error {
	if e, ok := errors.AsType[*kong.ParseError](refused); ok && e.Context.Selected() == n.DefaultCmd {
		isIt := func(arg string) bool { return arg == "serve" || refused.Error() == "unexpected argument "+arg }
		args = args[max(0, slices.IndexFunc(args, isIt)):]
	}
	path := []string{"natsid"}
	for i, word := range args {
		var names []string
		var child *kong.Node
		for _, c := range n.Children {
			names = append(names, c.Name)
			if c.Name == word {
				child = c
			}
		}
		if strings.HasPrefix(word, "-") || len(names) == 0 {
			return nil
		}
		if child == nil {
			typed := strings.Join(append(path, word), " ")
			meant := []string{app.Nearest(word, names)}
			if n.Name == "get" && meant[0] == "" {
				meant = []string{"segment", word} // the word is taken for a tag
			}
			for _, leaf := range n.Leaves(true) {
				if meant[0] == "" && leaf.Name == word { // as "create" for "tag create"
					meant = strings.Fields(leaf.Path())
				}
			}
			if meant[0] == "" {
				return fmt.Errorf("%q is no command: want one of %s", typed, strings.Join(names, ", "))
			}
			return fmt.Errorf("%q is no command: did you mean `%s`?", typed,
				strings.Join(slices.Concat(path, meant, args[i+1:]), " "))
		}
		n, path = child, append(path, word)
	}
	return nil
}

// beginsWithHyphen matches the parser's error about a value such as -5. The parser advises --flag=-5, which natsid
// refuses, too.
var beginsWithHyphen = regexp.MustCompile(`^(--[a-z-]+): expected .* got "(-[^"]*)" \(.*\); perhaps try .*`)

// inWords returns the parser's error with the usage of the command, and with better advice for a value such as -5.
func inWords(err error) error {
	e, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return err
	}
	text := beginsWithHyphen.ReplaceAllString(e.Error(),
		`$1 $2: want a value that does not begin with a hyphen; no number may be below 0`)
	for _, f := range e.Context.Flags() {
		if rest, ok := strings.CutPrefix(text, "--"+f.Name); ok && rest != "" && strings.Contains(": ", rest[:1]) {
			text = writtenName(e.Context, f) + rest
		}
	}
	if n := e.Context.Selected(); n != nil && strings.Contains(text, "expected ") {
		text += "; usage: natsid " + n.Summary()
	}
	return errors.New(text)
}
