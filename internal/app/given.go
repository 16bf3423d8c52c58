package app

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/configfile"
)

// A Given is the text that was given for a setting, and where the text was given.
type Given struct {
	Text  string
	From  Source
	Place string // what messages call the setting: FILE:LINE: NAME, or a variable; "" means the flag

	unread bool // the text is malformed, which [Parse] has reported
}

// A Source is where a setting was given. A higher source takes precedence over a lower one.
type Source int

// The sources of settings.
const (
	FromDefault Source = iota
	FromContext        // a context of the nats command
	FromFile           // the file of --config
	FromEnv            // an environment variable
	FromFlag
)

// Parse returns the Config of "natsid serve": the defaults, changed by the given settings. The keys are flags. The
// error names the place of every malformed text. [Config.Validate] checks ranges.
func Parse(given map[string]Given) (Config, error) {
	c := Config{Version: "0.0.0-dev", AutoCreateTags: given["nats"].Text == "", given: make(map[string]Given)}
	var faults []error
	for _, s := range settings {
		g, ok := given[s.Flag]
		if !ok && s.Default == "" {
			continue
		} else if !ok {
			g.Text = s.Default
		}
		if err := s.put(&c, g.Text); err != nil {
			g.unread = true
			_ = s.put(&c, s.Default) // what checks of other settings then see
			faults = append(faults, s.fault(given, err))
		}
		if ok {
			c.given[s.Flag] = g
		}
	}
	return c, errors.Join(faults...)
}

// Given returns the text that was given for a setting, and where it was given.
func (c Config) Given(flag string) Given { return c.given[flag] }

// put sets the value of a setting from its text. For most settings an empty text is an error: a template may lack a
// value, and with the default the worker would start outside its fleet.
func (s Setting) put(c *Config, text string) (err error) {
	if s.set != nil {
		err = s.set(c, text)
	} else {
		err = read(s.in(c), text)
	}
	switch {
	case text == "" && s.Flag == "nats":
		return errors.New("is set, but empty: remove it, or name a server")
	case text == "" && !s.none:
		return errors.New("is set, but empty: remove it, or give it a value")
	case err != nil:
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// fault returns err with the place where the setting was given. A setting that was not given fails only because of the
// setting beside, whose value its check also reads: then err gets that setting's line in the configuration file.
func (s Setting) fault(given map[string]Given, err error) error {
	where := place(s.Flag, given)
	if beside := given[s.beside]; given[s.Flag].From == FromDefault && beside.From == FromFile {
		where = strings.TrimSuffix(beside.Place, s.beside) + "--" + s.Flag
	}
	return fmt.Errorf("%s %w", where, err)
}

// ReadFile returns the settings in a configuration file, by flag. The error names every malformed line and unknown
// setting. [Parse] and [Config.Validate] check the values.
func ReadFile(config Given) (map[string]Given, error) {
	name := config.Text
	text, err := configfile.Read(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Place, err)
	}
	entries, found := configfile.Parse(text)
	given := make(map[string]Given)
	for _, e := range entries {
		flag, fault := named(e.Name)
		if other, twice := given[flag]; twice {
			fault = " is the same setting as " + other.Place + ": keep one"
		}
		if fault != "" {
			found = append(found, configfile.Fault{Line: e.Line, Text: e.Name + fault})
			continue
		}
		given[flag] = Given{Text: e.Text, From: FromFile, Place: fmt.Sprintf("%s:%d: %s", name, e.Line, e.Name)}
	}
	var faults []error
	for _, f := range found {
		faults = append(faults, fmt.Errorf("%s:%d: %s", name, f.Line, f.Text))
	}
	return given, errors.Join(faults...)
}

// named returns the flag for a name in the configuration file. fault says what is wrong with the name; "" for nothing.
func named(name string) (flag, fault string) {
	var flags []string
	for _, s := range settings {
		switch {
		case s.Flag != name && !slices.Contains(s.Aliases, name):
			flags = append(flags, s.Flag)
		case s.Flag == "config":
			return s.Flag, " cannot stand in the file: a file names no other"
		default:
			return s.Flag, ""
		}
	}
	if best := Nearest(name, flags); best != "" {
		return name, " is no setting: did you mean " + best + "?"
	}
	return name, " is no setting: `natsid serve --help` lists them, without the leading dashes here"
}

// MisspeltEnv returns an error that names each environment variable that is probably a misspelt setting. A variable
// that resembles no setting is allowed: Kubernetes sets NATSID_PORT and NATSID_SERVICE_HOST for a Service named natsid.
// Other programs also use variables that begin with NATS_. So one of these counts as misspelt only if a single
// character differs.
func MisspeltEnv(environ []string) error {
	var faults []error
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		prefix, rest, _ := strings.Cut(name, "_")
		var known []string
		for _, s := range settings {
			if own, ok := strings.CutPrefix(s.Env, prefix+"_"); ok {
				known = append(known, own)
			}
		}
		best := Nearest(rest, known)
		if best != "" && best != rest && (prefix != "NATS" || edits(rest, best) == 1) {
			faults = append(faults, fmt.Errorf("%s in the environment is no setting: did you mean %s_%s?",
				name, prefix, best))
		}
	}
	return errors.Join(faults...)
}

// Nearest returns the one of names that is probably meant by name; "" if name resembles none of them.
func Nearest(name string, names []string) (best string) {
	distance := 1 + max(2, len(name)/3)
	for _, n := range names {
		if d := edits(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// edits returns how many characters must be inserted, removed or replaced to turn a into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0] // the value above and left of the one that is computed next
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last = row[j+1]
			row[j+1] = min(change, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}

// A Value is a setting with the value that is in use, as text for people.
type Value struct {
	Setting string `json:"setting"`         // the flag, without dashes
	Value   string `json:"value"`           // its text, with xxxxx for a secret
	From    string `json:"from"`            // flag, environment, file, context or default
	Place   string `json:"place,omitempty"` // FILE:LINE, variable or flag; "" for a default
}

// hidden is shown in place of a secret.
const hidden = "xxxxx"

// Values returns all settings of a Config that [Parse] has returned, in the order of [Settings].
func (c Config) Values() (all []Value) {
	for _, s := range settings {
		g := c.given[s.Flag]
		v := Value{s.Flag, g.Text, g.From.String(), strings.TrimSuffix(g.Place, ": "+s.Flag)}
		switch {
		case s.show != nil:
			v.Value = s.show(&c)
		case g.From == FromDefault:
			v.Value = s.Default
		case s.file != nil && g.Text != "":
			v.Value = hidden
		}
		all = append(all, v)
	}
	return all
}

// String returns the source in one word.
func (s Source) String() string {
	return [...]string{"default", "context", "file", "environment", "flag"}[s]
}

func showAutoCreate(c *Config) string {
	if c.AutoCreatePattern != "" {
		return c.AutoCreatePattern
	}
	return strconv.FormatBool(c.AutoCreateTags)
}

func showEpoch(c *Config) string {
	return time.UnixMilli(c.Layout.Epoch).UTC().Format(time.RFC3339Nano)
}
