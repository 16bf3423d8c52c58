package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/configfile"
)

// Settings of commands other than serve. addSettings names the commands that have each further one.
var (
	common   = []string{"config", "namespace"} // of every command, like all settings of NATS
	ofLayout = []string{"layout", "epoch"}     // of config, decode, layout, leaf, number, serve and test-server
	// ofNumber are those of number besides.
	ofNumber = []string{"site", "horizon", "max-clock-skew"}
)

// addSettings gives each command the flags of its settings.
func addSettings(k *kong.Kong) error {
	for _, s := range app.Settings() {
		switch {
		case slices.Contains(common, s.Flag) || s.Group == app.GroupNATS:
			addFlag(k.Model.Node, s)
		default:
			addFlag(find(k, "serve"), s)
			addFlag(find(k, "config"), s)
		}
		if s.Flag == "http" {
			addFlag(find(k, "health"), s)
		}
		if strings.HasPrefix(s.Flag, "mysql") {
			addFlag(find(k, "store move"), s)
			addFlag(find(k, "resume"), s)
		}
		if slices.Contains(ofNumber, s.Flag) || slices.Contains(ofLayout, s.Flag) {
			addFlag(find(k, "number"), s)
		}
		if s.Flag == "grants" {
			addFlag(find(k, "permissions"), s)
		}
		if slices.Contains(ofLayout, s.Flag) {
			addFlag(find(k, "decode"), s)
			addFlag(find(k, "layout"), s)
			addFlag(find(k, "leaf"), s)
			addFlag(find(k, "test-server"), s)
		}
	}
	return nil
}

// find returns the command of that path, such as "tag create".
func find(k *kong.Kong, path string) *kong.Node {
	all := k.Model.Leaves(false)
	return all[slices.IndexFunc(all, func(n *kong.Node) bool { return n.Path() == path })]
}

// addFlag adds the flag of a setting to a command. It gives kong neither default nor range, which [app.Parse] applies
// later: so a flag that is not used counts as not given.
func addFlag(n *kong.Node, s app.Setting) {
	tag := &kong.Tag{Envs: []string{s.Env}}
	if s.Bare {
		tag.Negatable = "_" // kong's syntax for a flag --no-NAME
	}
	var target written
	f := &kong.Flag{
		Value: &kong.Value{
			Name: s.Flag, Help: helpOf(s), OrigHelp: helpOf(s), Mapper: reader{s.Bare},
			Tag: tag, Target: reflect.ValueOf(&target).Elem(), DefaultValue: reflect.ValueOf(written{}),
		},
		Aliases: s.Aliases, Envs: tag.Envs, PlaceHolder: s.Placeholder,
	}
	if s.Default != "" {
		f.PlaceHolder = s.Default
	}
	if n.Type == kong.CommandNode && (n.Name == "serve" || n.Name == "config") {
		f.Group = &kong.Group{Key: s.Group, Title: s.Group + ":"}
	}
	f.Value.Flag = f
	n.Flags = append(n.Flags, f)
}

// helpOf returns the help of a setting with its range.
func helpOf(s app.Setting) string {
	if s.Range == "" {
		return s.Help
	}
	return s.Help + " Valid: " + s.Range + "."
}

// written is the text of a flag, from the command line or the environment.
type written struct {
	text  string
	given bool
}

// A reader reads the text of a flag. A bare flag without a value means true.
type reader struct{ bare bool }

// Decode implements [kong.Mapper].
func (r reader) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if r.bare && ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.Set(reflect.ValueOf(written{"true", true}))
		return nil
	}
	token, err := ctx.Scan.PopValue("text")
	if err != nil {
		return err
	}
	target.Set(reflect.ValueOf(written{configfile.Clean(fmt.Sprint(token.Value)), true}))
	return nil
}

// IsBool implements [kong.BoolMapper].
func (r reader) IsBool() bool { return r.bare }
