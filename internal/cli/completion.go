package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
)

type completionCmd struct {
	Shell string   `arg:"" enum:"bash,zsh,fish"`
	Words []string `arg:"" optional:""`
}

func (*completionCmd) help() help {
	return help{
		summary: "Print a script that completes commands and flags in a shell.",
		detail: `The script asks "natsid completion SHELL -- WORDS" what can stand in place of the
last of the words.

Examples:
  natsid completion bash >/etc/bash_completion.d/natsid
  natsid completion zsh >"${fpath[1]}/_natsid"
  natsid completion fish >~/.config/fish/completions/natsid.fish
  . <(natsid completion bash)     # for this shell only`,
		values: map[string]string{
			"shell": "bash, zsh or fish.",
			"words": "The words of a command line after natsid: print what can stand in place of the last one.",
		},
	}
}

// A completion is a word that can stand at a place of a command line.
type completion struct{ word, help string }

// A shell has the script that completes in it, and the line in which that script reads a completion.
type shell struct {
	script string
	line   func(completion) string
}

// shells are the shells by name. Their scripts complete a file where natsid prints the word FILE alone.
var shells = map[string]shell{
	"bash": {bashScript, func(c completion) string { return c.word }},
	"zsh": {zshScript, func(c completion) string {
		return strings.ReplaceAll(c.word, ":", `\:`) + ":" + c.help
	}},
	"fish": {fishScript, func(c completion) string { return c.word + "\t" + c.help }},
}

// bash splits words at = too, and hands them over one by one.
const bashScript = `# bash completion for natsid

_natsid() {
	local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]#=} words
	words=$(natsid completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	if [[ $words == FILE ]]; then
		compopt -o filenames 2>/dev/null
		COMPREPLY=($(compgen -f -- "$cur"))
	else
		COMPREPLY=($(compgen -W "$words" -- "$cur"))
	fi
}

complete -F _natsid natsid
`

const zshScript = `#compdef natsid

_natsid() {
	local -a words_
	words_=("${(@f)$(natsid completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	[[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
	if [[ $words_ == FILE: ]]; then
		_files
	else
		_describe natsid words_
	fi
}

if [[ ${funcstack[1]} == _natsid ]]; then
	_natsid "$@"
else
	compdef _natsid natsid
fi
`

const fishScript = `# fish completion for natsid

function __natsid
	set -l words (natsid completion fish -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
	if test "$words" = FILE\t
		__fish_complete_path (commandline -ct)
	else
		string match -- (commandline -ct)'*' $words
	end
end

complete -c natsid -f -a '(__natsid)'
`

// Run implements the command.
func (c *completionCmd) Run(s *session) error {
	sh := shells[c.Shell]
	if len(c.Words) == 0 {
		_, err := fmt.Fprint(s.stdout, sh.script)
		return err
	}
	for _, one := range completions(s.call.Model.Node, joined(c.Words), c.Shell == "fish") {
		fmt.Fprintln(s.stdout, sh.line(one))
	}
	return nil
}

// joined returns the words of a command line with flag=value as one word, which bash splits.
func joined(words []string) (all []string) {
	for _, w := range words {
		last := len(all) - 1
		if last >= 0 && strings.HasPrefix(all[last], "--") && (w == "=" || strings.HasSuffix(all[last], "=")) {
			all[last] += w
		} else {
			all = append(all, w)
		}
	}
	return all
}

// completions returns what can stand in place of the last word, after the others. With whole a value after = is
// completed together with its flag.
func completions(n *kong.Node, words []string, whole bool) (all []completion) {
	last := words[len(words)-1]
	var open *kong.Flag // its value is the next word
	for _, word := range words[:len(words)-1] {
		at := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Name == word })
		switch flag := flagOf(n, word); {
		case open != nil:
			open = nil
		case flag != nil && !flag.IsBool():
			open = flag
		case at >= 0:
			n = n.Children[at]
		}
	}
	prefix := ""
	if name, _, assigned := strings.Cut(last, "="); assigned && open == nil {
		if open = flagOf(n, name); whole {
			prefix = name + "="
		}
	}
	switch {
	case open != nil:
		for _, word := range valuesOf(open) {
			all = append(all, completion{word: prefix + word})
		}
		return all
	case strings.HasPrefix(last, "-"):
		for _, f := range flagsAt(n) {
			for _, name := range namesOf(f) {
				all = append(all, completion{name, summary(f.Help)})
			}
		}
		return all
	}
	for _, child := range n.Children {
		all = append(all, completion{child.Name, summary(child.Help)})
	}
	for _, arg := range n.Positional {
		for _, word := range enumOf(arg) {
			all = append(all, completion{word: word})
		}
	}
	return all
}

// flagsAt returns the flags that can stand after a command.
func flagsAt(n *kong.Node) []*kong.Flag {
	all := slices.Concat(n.AllFlags(false)...)
	if n.DefaultCmd != nil {
		all = append(all, n.DefaultCmd.Flags...)
	}
	return all
}

// flagOf returns the flag of that name that can stand after a command, nil if there is none.
func flagOf(n *kong.Node, name string) *kong.Flag {
	all := flagsAt(n)
	if at := slices.IndexFunc(all, func(f *kong.Flag) bool { return slices.Contains(namesOf(f), name) }); at >= 0 {
		return all[at]
	}
	return nil
}

// namesOf returns the names of a flag, without aliases.
func namesOf(f *kong.Flag) []string {
	names := []string{"--" + f.Name}
	if f.Short != 0 {
		names = append(names, "-"+string(f.Short))
	}
	if f.Tag.Negatable != "" {
		names = append(names, "--no-"+f.Name)
	}
	return names
}

// valuesOf returns the values of a flag, if they are few, or FILE.
func valuesOf(f *kong.Flag) []string {
	words, file := enumOf(f.Value), f.PlaceHolder == "FILE"
	for _, s := range app.Settings() {
		if s.Flag == f.Name && f.Mapper == kong.Mapper(reader{s.Bare}) {
			words, file = s.Words, file || s.Flag == "data"
		}
	}
	if file {
		return []string{"FILE"}
	}
	return words
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

// summary returns the first sentence of a help, without its full stop.
func summary(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	first, _, _ = strings.Cut(first, ". ")
	return strings.TrimSuffix(first, ".")
}
