package cli

import (
	"slices"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish"`
}

func (*completionCmd) help() help {
	return help{
		summary: "Print a script that completes commands and flags in a shell.",
		detail: `Examples:
  natsid completion bash >/etc/bash_completion.d/natsid
  natsid completion zsh >"${fpath[1]}/_natsid"
  natsid completion fish >~/.config/fish/completions/natsid.fish
  . <(natsid completion bash)     # for this shell only`,
		values: map[string]string{"shell": "bash, zsh or fish."},
	}
}

// Run implements the command.
func (c *completionCmd) Run(s *session) error {
	script := map[string]*template.Template{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	return script.Execute(s.stdout, completions(s.call.Model.Node))
}

// A completion is the words that can follow at each place of a command line.
type completion struct {
	Commands []completedCommand
	Common   []completedFlag // of every command
	Flags    []completedFlag // all, each name once
}

// A completedCommand is a command or a group of commands.
type completedCommand struct {
	Path  string // "tag create"; "" is natsid itself
	Words []completedWord
	Flags []completedFlag // besides those of every command
}

// A completedWord is a word that can follow a command: a subcommand, or an argument of few values.
type completedWord struct{ Word, Help string }

// A completedFlag is one of the names of a flag.
type completedFlag struct {
	Name  string // with dashes
	Help  string
	Value bool     // a value follows
	Words []string // the values, if they are few
	File  bool     // the value names a file or a directory
}

func completions(root *kong.Node) completion {
	c := completion{Common: completedFlags(root.Flags)}
	c.add(root)
	c.Flags = slices.Clone(c.Common)
	for _, command := range c.Commands {
		for _, f := range command.Flags {
			if !slices.ContainsFunc(c.Flags, func(other completedFlag) bool { return other.Name == f.Name }) {
				c.Flags = append(c.Flags, f)
			}
		}
	}
	return c
}

// add adds a command and those below it.
func (c *completion) add(n *kong.Node) {
	command := completedCommand{Path: n.Path()}
	for _, child := range n.Children {
		command.Words = append(command.Words, completedWord{child.Name, summary(child.Help)})
	}
	for _, arg := range n.Positional {
		if arg.Enum != "" {
			for _, word := range arg.EnumSlice() {
				command.Words = append(command.Words, completedWord{word, ""})
			}
		}
	}
	if n.DefaultCmd != nil {
		command.Flags = completedFlags(n.DefaultCmd.Flags) // can stand here, too
	} else if n.Parent != nil {
		command.Flags = completedFlags(n.Flags)
	}
	c.Commands = append(c.Commands, command)
	for _, child := range n.Children {
		c.add(child)
	}
}

func completedFlags(flags []*kong.Flag) (all []completedFlag) {
	for _, f := range flags {
		all = append(all, namesOf(f)...)
	}
	return all
}

// namesOf returns the names of a flag, without aliases.
func namesOf(f *kong.Flag) []completedFlag {
	one := completedFlag{Name: "--" + f.Name, Help: summary(f.Help), Value: !f.IsBool(), File: f.PlaceHolder == "FILE"}
	if f.Enum != "" {
		one.Words = f.EnumSlice()
	}
	for _, s := range app.Settings() {
		if s.Flag == f.Name && f.Mapper == kong.Mapper(reader{s.Bare}) {
			one.Words, one.File = s.Words, one.File || s.Flag == "data"
		}
	}
	all := []completedFlag{one}
	if f.Short != 0 {
		one.Name = "-" + string(f.Short)
		all = append(all, one)
	}
	if f.Tag.Negatable != "" {
		one.Name = "--no-" + f.Name
		all = append(all, one)
	}
	return all
}

// summary returns the first sentence of a help, without its full stop.
func summary(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	first, _, _ = strings.Cut(first, ". ")
	return strings.TrimSuffix(first, ".")
}
