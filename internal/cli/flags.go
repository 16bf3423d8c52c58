package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/configfile"
)

// ofLayout are the settings that describe a layout of snowflakes.
var ofLayout = []string{"layout", "epoch"}

// commandsOf returns the commands that take a setting as a flag; nil means all.
func commandsOf(s app.Setting) []string {
	commands := []string{"serve", "config"}
	switch {
	case s.Group == app.GroupNATS, s.Flag == "config", s.Flag == "namespace":
		return nil
	case slices.Contains(ofLayout, s.Flag):
		return append(commands, "decode", "layout", "leaf", "number", "test-server")
	case slices.Contains([]string{"site", "horizon", "max-clock-skew"}, s.Flag):
		return append(commands, "number")
	case strings.HasPrefix(s.Flag, "mysql"):
		return append(commands, "store move", "resume")
	case s.Flag == "http":
		return append(commands, "health")
	case s.Flag == "grants":
		return append(commands, "permissions")
	}
	return commands
}

func addSettings(k *kong.Kong) {
	for _, s := range app.Settings() {
		commands := commandsOf(s)
		if commands == nil {
			addFlag(k.Model.Node, s)
		}
		for _, n := range k.Model.Leaves(false) {
			if slices.Contains(commands, n.Path()) {
				addFlag(n, s)
			}
		}
	}
}

// addFlag adds the flag of a setting to a command. kong gets neither default nor range, so that a flag that is not
// used counts as not given; [app.Parse] applies both later.
func addFlag(n *kong.Node, s app.Setting) {
	tag := &kong.Tag{Envs: []string{s.Env}}
	if s.Bare {
		tag.Negatable = "_" // kong's syntax for a flag --no-NAME
	}
	var target *string
	if s.Range != "" {
		s.Help += " Valid: " + s.Range + "."
	}
	f := &kong.Flag{
		Value: &kong.Value{
			Name: s.Flag, Help: s.Help, OrigHelp: s.Help, Mapper: reader{s.Bare},
			Tag: tag, Target: reflect.ValueOf(&target).Elem(), DefaultValue: reflect.ValueOf(target),
		},
		Aliases: s.Aliases, Envs: tag.Envs, PlaceHolder: cmp.Or(s.Default, s.Placeholder),
	}
	if n.Type == kong.CommandNode && (n.Name == "serve" || n.Name == "config") {
		f.Group = &kong.Group{Key: s.Group, Title: s.Group + ":"}
	}
	f.Value.Flag = f
	n.Flags = append(n.Flags, f)
}

// A reader reads the value of a flag as text. bare means that the flag may stand without a value, and then means true.
type reader struct{ bare bool }

// Decode implements [kong.Mapper].
func (r reader) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	text := "true"
	if !r.bare || ctx.Scan.Peek().Type == kong.FlagValueToken {
		token, err := ctx.Scan.PopValue("text")
		if err != nil {
			return err
		}
		text = configfile.Clean(fmt.Sprint(token.Value))
	}
	target.Set(reflect.ValueOf(&text))
	return nil
}

// IsBool implements [kong.BoolMapper].
func (r reader) IsBool() bool { return r.bare }
