package cli

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// settings are the settings that the flags, the environment and the configuration file give to a command.
type settings struct {
	call      *kong.Context        // the parsed command line
	given     map[string]app.Given // by name of the flag
	fileFault error                // what is wrong in the configuration file
	said      []string             // for the user: which settings are ignored, since others take precedence
}

// givenTo returns the settings that flags and the environment give to a command, by the name of the flag.
func givenTo(call *kong.Context) map[string]app.Given {
	given := make(map[string]app.Given)
	for _, f := range call.Flags() {
		text, _ := f.Target.Interface().(*string)
		switch {
		case text == nil: // the flag is not given, or is no setting
		case onCommandLine(call, f.Name):
			given[f.Name] = app.Given{Text: *text, From: app.FromFlag, Place: writtenName(call, f)}
		default:
			given[f.Name] = app.Given{Text: *text, From: app.FromEnv, Place: f.Envs[0]}
		}
	}
	return given
}

// writtenName returns a flag as the user wrote it: --name, --alias or -n.
func writtenName(call *kong.Context, f *kong.Flag) string {
	for _, name := range slices.Concat(f.Aliases, []string{f.Name}) {
		for _, arg := range call.Args {
			if arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=") {
				return "--" + name
			}
		}
	}
	if f.Short != 0 {
		return "-" + string(f.Short)
	}
	return "--" + f.Name
}

// onCommandLine reports whether a flag is given on the command line, rather than in the environment.
func onCommandLine(call *kong.Context, flag string) bool {
	return slices.ContainsFunc(call.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == flag })
}

// addFile adds the settings of the configuration file that neither a flag nor the environment sets. The file may be
// shared by several commands, so settings that this one does not have are ignored.
func (s *settings) addFile() {
	file := s.given["config"]
	if file.Text == "" {
		return
	}
	var written map[string]app.Given
	written, s.fileFault = app.ReadFile(file)
	for _, f := range s.call.Flags() {
		g, ok := written[f.Name]
		if _, above := s.given[f.Name]; ok && !above {
			s.given[f.Name] = g
		}
	}
}

// config returns the settings given to the command; the others have their defaults. They are not checked as a whole.
func (s *settings) config() (app.Config, error) {
	cfg, err := app.Parse(s.given)
	return cfg, usage(errors.Join(s.fileFault, err))
}

// validConfig returns the settings, including those from a context of the nats command, or an error that names all
// faults.
func (s *settings) validConfig() (cfg app.Config, err error) {
	all, said, fault := app.Resolve(s.given)
	s.said = said
	cfg, err = app.Parse(all)
	return cfg, usage(errors.Join(s.fileFault, fault, app.MisspeltEnv(os.Environ()), err, cfg.Validate()))
}

func (s *settings) namespace() subjects.Namespace {
	return cmp.Or(subjects.Namespace(s.given["namespace"].Text), app.Default().Namespace)
}

// layout returns the layout of --layout and --epoch, once it is found valid.
func (s *settings) layout() (snowflake.Layout, error) {
	cfg, err := s.config()
	if err != nil {
		return snowflake.Layout{}, err
	}
	return cfg.Layout, usage(cfg.Layout.Validate())
}

// epoch returns --epoch in Unix milliseconds; without it, the start of today in UTC. It parses no other setting, so
// that a layout in the environment does not disturb the plan of a new one.
func (s *settings) epoch(now time.Time) (int64, error) {
	epoch := s.given["epoch"]
	if epoch.Text == "" {
		return now.Truncate(24 * time.Hour).UnixMilli(), nil
	}
	cfg, err := app.Parse(map[string]app.Given{"epoch": epoch})
	return cfg.Layout.Epoch, usage(err)
}
