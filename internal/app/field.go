package app

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// Errors of the functions below do not name the setting: [Setting.fault] adds the name.

// read sets the value to which p points from its text.
func read(p any, text string) (err error) {
	switch p := p.(type) {
	case *string:
		*p = text
	case *subjects.Namespace:
		*p = subjects.Namespace(text)
	case *snowflake.Layout:
		*p, err = snowflake.ParseLayout(text)
	case **workerid.Span:
		*p = new(workerid.Span)
		**p, err = workerid.ParseSpan(text)
	case *time.Duration:
		if *p, err = time.ParseDuration(text); err != nil {
			err = errors.New("want a duration, such as 1.5s or 10m")
		}
	case *slog.Level:
		if p.UnmarshalText([]byte(text)) != nil {
			err = errors.New("want debug, info, warn or error")
		}
	default:
		number := reflect.ValueOf(p).Elem()
		n, malformed := strconv.ParseInt(text, 0, number.Type().Bits())
		if malformed != nil {
			return errors.New("want a whole number")
		}
		number.SetInt(n)
	}
	return err
}

// valid returns why the value of the setting is not valid, nil if it is valid. If the setting has no check, and its
// Range has a form such as "1s to 24h" or "0 to 5 replicas", the value is a number or duration within that Range.
func (s Setting) valid(c *Config) error {
	if s.check != nil {
		return s.check(c)
	}
	ends := strings.Fields(s.Range)
	if len(ends) < 3 || ends[1] != "to" {
		return nil
	}
	n := reflect.ValueOf(s.in(c)).Elem()
	low, high := reflect.New(n.Type()), reflect.New(n.Type())
	if err := errors.Join(read(low.Interface(), ends[0]), read(high.Interface(), ends[2])); err != nil {
		return err
	}
	if n.Int() < low.Elem().Int() || n.Int() > high.Elem().Int() {
		return fmt.Errorf("%v: want %s", n, s.Range)
	}
	return nil
}

// together returns an error if only one of the two files is given. other is the second one's flag.
func together(file, others, other string) error {
	if (file == "") != (others == "") {
		return fmt.Errorf("and --%s belong together: give both", other)
	}
	return nil
}

const mostGrants = 3650 * 24 * time.Hour

// setGrants reads a duration such as 12h or 30d, or off.
func setGrants(c *Config, text string) (err error) {
	c.Grants = 0
	if text == "off" {
		return nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		c.Grants, err = time.ParseDuration(days + "h")
		c.Grants = 24 * min(c.Grants, mostGrants)
	} else {
		c.Grants, err = time.ParseDuration(text)
	}
	if err != nil || c.Grants == 0 {
		return errors.New("want a time, such as 30d or 12h, or off")
	}
	return nil
}

func checkGrants(c *Config) error {
	if c.Grants != 0 && (c.Grants < time.Hour || c.Grants > mostGrants) {
		return fmt.Errorf("%v: want off, or 1h to 3650d", c.Grants)
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

// setAutoCreate reads on, off, a synonym of these in YAML such as yes, or a pattern of tags.
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

// checkLayout checks the layout, and the epoch, which is a part of the layout.
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

// setEpoch sets the epoch of c.Layout. The table of settings has the layout before the epoch, so c.Layout is set.
func setEpoch(c *Config, text string) error {
	ms, err := strconv.ParseInt(text, 10, 64)
	if 0 < ms && ms < 1e11 {
		return errors.New("that is before 1973 in milliseconds; is it a year, or seconds? Want a date, as 2018-09-22")
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, malformed := time.Parse(form, text); malformed == nil {
			ms, err = t.UnixMilli(), nil
		}
	}
	if err != nil {
		return errors.New("want a date, which begins at midnight UTC, as 2018-09-22; " +
			"a time, as 2018-09-22T00:00:00+08:00; or Unix milliseconds")
	}
	c.Layout.Epoch = ms
	return nil
}

// checkSite checks the site, unless the layout has a fault, which [checkLayout] reports.
func checkSite(c *Config) error {
	if c.Layout.Validate() != nil || 0 <= c.Site && c.Site < c.Layout.Sites() {
		return nil
	}
	return fmt.Errorf("%d: want 0 to %d, since layout %s has %d site bits; choose one with more with --layout",
		c.Site, c.Layout.Sites()-1, c.Layout, c.Layout.Site)
}

// checkNumbers checks the worker numbers, unless the layout or the site has a fault: their own checks report those.
func checkNumbers(c *Config) error {
	if c.Numbers == nil || c.Layout.Validate() != nil || c.Site < 0 || c.Site >= c.Layout.Sites() {
		return nil
	}
	return c.Numbers.Within(c.Layout, c.Site)
}
