package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
)

// misspelt returns an error that names the probable command line if args begin with a word that is no command of n, or
// nil.
func misspelt(n *kong.Node, args []string) error {
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
			meant := []string{app.Nearest(word, names)}
			if n.Name == "get" && meant[0] == "" {
				meant = []string{"segment", word} // a tag
			}
			if meant[0] == "" {
				return nil
			}
			return fmt.Errorf("%q is no command: did you mean `%s`?", strings.Join(append(path, word), " "),
				strings.Join(slices.Concat(path, meant, args[i+1:]), " "))
		}
		n, path = child, append(path, word)
	}
	return nil
}
