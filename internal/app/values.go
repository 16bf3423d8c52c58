package app

import (
	"strconv"
	"strings"
	"time"
)

// A Value is a setting with the value in force, as people may see it: secrets are hidden.
type Value struct {
	Flag, Text string
	From       Source
	Place      string // where it was given; "" if it was not
}

// hidden is shown in place of a secret.
const hidden = "xxxxx"

// Values returns the settings of a Config that [Parse] has returned, in the order of [Settings].
func (c Config) Values() (all []Value) {
	for _, s := range settings {
		g := c.given[s.Flag]
		v := Value{s.Flag, g.Text, g.From, strings.TrimSuffix(g.Place, ": "+s.Flag)}
		switch {
		case s.show != nil:
			v.Text = s.show(&c)
		case g.From == FromDefault:
			v.Text = s.Default
		case s.file != nil && g.Text != "":
			v.Text = hidden
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
