package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
)

// help is the text of a command's "--help". It is in code, since struct tags are a bad place for prose.
type help struct {
	summary string            // one line
	detail  string            // below the summary; indented lines are kept as they are
	values  map[string]string // help of arguments and flags, by name; [sharedHelp] has that of others
}

// sharedHelp is the help of arguments and flags that several commands have, by name.
var sharedHelp = map[string]string{
	"yes": "Do not ask.", "dry-run": "Show what would be done, and change nothing.",
	"n":   "How many IDs. More than one are printed as runs, first-last, one a line.",
	"key": "A key that the format names, and its file. May be repeated.",
	"tag": "The tag: 1 to 128 characters of A-Z a-z 0-9 - _ / = and single dots inside.",
	"max-hole": "The most numbers that a crash of one worker may waste, unanswered requests not counted: workers " +
		"load fewer at once, and more often. Off: a hundredth of the tag's numbers.",
	"callers":  "How many callers, each with one call under way.",
	"duration": "How long natsid is measured. Bare requests take as long again.",
	"merge":    "Call through the Go client: calls share requests, and faults are retried.",
	"from":     "The stream to copy. It must have limits retention.",
	"to":       "The stream to copy to. Nothing else may publish to it.",
	"filter":   "Copy the messages on these subjects only, such as 'orders.*.paid'. May be repeated.",
}

// addHelp gives the command n, and all commands below it, their help. It returns an error if a command, flag or
// argument has none.
func addHelp(n *kong.Node) error {
	h := n.Target.Addr().Interface().(interface{ help() help }).help()
	n.Help, n.Detail = h.summary, h.detail
	for _, v := range n.Values() {
		if text := cmp.Or(h.values[v.Name], sharedHelp[v.Name]); text != "" {
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

// printHelp prints the help of a command. Only `natsid help connection` explains the flags that every command has; the
// help of other commands names some of them.
func (s *session) printHelp(opts kong.HelpOptions, call *kong.Context) error {
	for _, f := range call.Model.Flags {
		f.Hidden = !s.connection
	}
	if err := kong.DefaultHelpPrinter(opts, call); err != nil || s.connection {
		return err
	}
	if call.Selected() == nil {
		fmt.Fprint(call.Stdout, "\nExit codes:\n")
		for _, e := range Exits() {
			fmt.Fprintf(call.Stdout, "  %-3d  %s\n", e.Code, e.Meaning)
		}
	}
	_, err := fmt.Fprint(call.Stdout, `
Flags of every command: --json (for programs), --version, --help, --config, and
--nats URL, --context NAME, --namespace NAME and others that lead to the service:
see "natsid help connection".
`)
	return err
}

type helpCmd struct {
	Topic []string `arg:"" optional:""`
}

func (*helpCmd) help() help {
	return help{
		summary: "Show the help of a command, or the flags for the connection to NATS.",
		detail: `Examples:
  natsid help tag create
  natsid help connection`,
		values: map[string]string{"topic": "A command, or the word connection."},
	}
}

// Run parses the command line "TOPIC --help": the parser then prints the help and calls kong's exit hook.
func (c *helpCmd) Run(s *session) error {
	topic := c.Topic
	if s.connection = slices.Equal(topic, []string{"connection"}); s.connection {
		topic = []string{"help"}
	}
	_, err := s.call.Kong.Parse(append(topic, "--help"))
	return usage(cmp.Or(misspelt(s.call.Model.Node, topic, err), inWords(err)))
}
