package app

import (
	"strconv"
	"strings"
	"time"
)

// A Value is a setting with the value in force, as people may see it: secrets are hidden.
type Value struct {
	Setting string `json:"setting"`         // the flag, without dashes
	Value   string `json:"value"`           // in its written form, secrets hidden
	From    string `json:"from"`            // flag, environment, file, context or default
	Place   string `json:"place,omitempty"` // where it was given; "" if it was not
}

// hidden is shown in place of a secret.
const hidden = "xxxxx"

// Values returns the settings of a Config that [Parse] has returned, in the order of [Settings].
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
