package app

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

// A field says how a setting sets and checks its part of a [Config]. Its functions return errors without the name of
// the setting.
type field struct {
	standard string // the default, in its written form
	limits   string // the valid values, with their unit
	set      func(c *Config, text string) error
	check    func(c *Config) error // nil if every value is valid
	beside   string                // the flag of another setting that the check concerns, "" for none
	none     bool                  // the empty text is valid, and means none
	// show returns the value for people, without secrets, or says how the default is found. If show is nil, people see
	// the given text.
	show func(c *Config) string
}

// checked returns the field with another check, and the valid values that it allows.
func (f field) checked(limits string, check func(*Config) error) field {
	f.limits, f.check = limits, check
	return f
}

// orNone returns the field with the empty text allowed.
func (f field) orNone() field {
	f.none = true
	return f
}

// with returns the field with another setting that its check concerns.
func (f field) with(beside string) field {
	f.beside = beside
	return f
}

// together returns the field with a check that it and another setting are both given, or neither.
func (f field) together(other string, values func(*Config) (own, other string)) field {
	return f.with(other).checked("with --"+other, func(c *Config) error {
		if a, b := values(c); (a == "") != (b == "") {
			return fmt.Errorf("and --%s belong together: give both", other)
		}
		return nil
	})
}

// shownAs returns the field with the function that shows its value to people.
func (f field) shownAs(show func(*Config) string) field {
	f.show = show
	return f
}

// text returns a field that takes any text.
func text[S ~string](of func(*Config) *S, standard S) field {
	return field{standard: string(standard), set: func(c *Config, text string) error {
		*of(c) = S(text)
		return nil
	}}
}

// span returns a field that takes a duration from low to high.
func span(of func(*Config) *time.Duration, standard, low, high time.Duration) field {
	f := field{standard: shorten(standard), limits: shorten(low) + " to " + shorten(high)}
	f.set = func(c *Config, text string) (err error) {
		if *of(c), err = time.ParseDuration(text); err != nil {
			return errors.New("want a duration, such as 1.5s or 10m")
		}
		return nil
	}
	f.check = func(c *Config) error { return within(*of(c), low, high, f.limits) }
	return f
}

// daysOrOff returns a field that takes a duration, such as 12h or 30d, from 1 h to most days. "off" sets it to 0. The
// default is standard, in days.
func daysOrOff(of func(*Config) *time.Duration, standard, most int) field {
	const day = 24 * time.Hour
	f := field{standard: fmt.Sprintf("%dd", standard), limits: fmt.Sprintf("off, or 1h to %dd", most)}
	f.set = func(c *Config, text string) (err error) {
		if text == "off" {
			*of(c) = 0
			return nil
		}
		if days, ok := strings.CutSuffix(text, "d"); ok {
			n, err := strconv.Atoi(days)
			if err != nil || n < 1 || n > most {
				return fmt.Errorf("want %s", f.limits)
			}
			*of(c) = time.Duration(n) * day
			return nil
		}
		if *of(c), err = time.ParseDuration(text); err != nil || *of(c) == 0 {
			return errors.New("want a time, such as 30d or 12h, or off")
		}
		return nil
	}
	f.check = func(c *Config) error {
		if *of(c) == 0 {
			return nil
		}
		return within(*of(c), time.Hour, time.Duration(most)*day, f.limits)
	}
	return f
}

// number returns a field that takes a whole number from low to high. unit is for the help; "" for none.
func number[N int | int64](of func(*Config) *N, unit string, standard, low, high N) field {
	limits := strings.TrimSpace(fmt.Sprintf("%d to %d %s", low, high, unit))
	f := field{standard: fmt.Sprint(standard), limits: limits}
	f.set = func(c *Config, text string) error {
		n, err := strconv.ParseInt(text, 0, 64)
		if err != nil || int64(N(n)) != n {
			return errors.New("want a whole number")
		}
		*of(c) = N(n)
		return nil
	}
	f.check = func(c *Config) error { return within(*of(c), low, high, f.limits) }
	return f
}

func within[N int | int64 | time.Duration](n, low, high N, limits string) error {
	if n < low || n > high {
		return fmt.Errorf("%v: want %s", n, limits)
	}
	return nil
}

func checkNamespace(c *Config) error {
	if err := c.Namespace.Check(); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "namespace "))
	}
	return nil
}

func checkRegistry(c *Config) error {
	if c.Registry == "" || lineage.IsID(c.Registry) {
		return nil
	}
	return fmt.Errorf("%q: want an ID as `natsid status` shows it", c.Registry)
}

func checkListen(c *Config) error {
	if c.NATS != "" {
		return nil
	}
	if _, _, err := natsembed.ParseListen(c.Listen); err != nil {
		return fmt.Errorf("%q: want host:port", c.Listen)
	}
	if natsembed.Loopback(c.Listen) {
		return nil
	}
	return fmt.Errorf("%q: other machines reach this address: say listen, tls and users in a file of --listen-conf",
		c.Listen)
}

func checkListenConf(c *Config) error {
	if c.NATS != "" && c.ListenConf != "" {
		return errors.New("and --nats exclude each other: it configures the embedded NATS server")
	}
	return nil
}

func checkHTTP(c *Config) error {
	if _, _, err := natsembed.ParseListen(c.HTTP); c.HTTP != "" && err != nil {
		return fmt.Errorf("%q: want host:port, or nothing", c.HTTP)
	}
	return nil
}

func checkData(c *Config) error {
	if c.NATS == "" && c.Data == "" {
		return errors.New(`"": the embedded NATS server needs a directory; name one, or join a NATS with --nats`)
	}
	return nil
}

// setAutoCreate reads on, off or a synonym of YAML's, or a pattern.
func setAutoCreate(c *Config, text string) error {
	switch strings.ToLower(text) {
	case "on", "true", "yes", "1":
		c.AutoCreateTags, c.AutoCreatePattern = true, ""
	case "off", "false", "no", "0":
		c.AutoCreateTags, c.AutoCreatePattern = false, ""
	default:
		c.AutoCreateTags, c.AutoCreatePattern = true, text
	}
	return nil
}

func checkAutoCreate(c *Config) error {
	if _, err := path.Match(c.AutoCreatePattern, ""); err != nil {
		return fmt.Errorf("%q is not a pattern: * stands for any characters but /, ? for one, [a-z] for one of these",
			c.AutoCreatePattern)
	}
	return nil
}

func setLayout(c *Config, text string) (err error) {
	c.Layout, err = snowflake.ParseLayout(text)
	return err
}

// checkLayout also checks the epoch, which is part of the layout.
func checkLayout(c *Config) error {
	if err := c.Layout.Validate(); err != nil {
		return fmt.Errorf("or --epoch: %w", err)
	}
	return nil
}

func setLogFormat(c *Config, text string) error {
	if c.LogJSON = text == "json"; c.LogJSON || text == "text" {
		return nil
	}
	return errors.New("want text or json")
}

// setEpoch sets the epoch of the layout, which is set before.
func setEpoch(c *Config, text string) (err error) {
	c.Layout.Epoch, err = parseEpoch(text)
	return err
}

// parseEpoch returns Unix milliseconds.
func parseEpoch(text string) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, errors.New("want a date, which begins at midnight UTC, as 2018-09-22; " +
		"a time, as 2018-09-22T00:00:00+08:00; or Unix milliseconds")
}

// checkSite checks the site if the layout is valid: otherwise the fault of the layout is reported.
func checkSite(c *Config) error {
	if c.Layout.Validate() != nil || 0 <= c.Site && c.Site < c.Layout.Sites() {
		return nil
	}
	return fmt.Errorf("%d: want 0 to %d, since layout %s has %d site bits; choose one with more with --layout",
		c.Site, c.Layout.Sites()-1, c.Layout, c.Layout.Site)
}

// setNumbers reads the first and the last worker number, such as 512-1023.
func setNumbers(c *Config, text string) error {
	of, err := workerid.ParseSpan(text)
	if err == nil {
		c.Numbers = &of
	}
	return err
}

// checkNumbers checks the numbers if the layout and the site are valid: otherwise their faults are reported.
func checkNumbers(c *Config) error {
	if c.Numbers == nil || c.Layout.Validate() != nil || c.Site < 0 || c.Site >= c.Layout.Sites() {
		return nil
	}
	return c.Numbers.Within(c.Layout, c.Site)
}
