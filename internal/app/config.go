// Package app is the composition root: the one place that knows every package,
// has the table of settings, and starts and stops the whole program in order.
// The command line and the end-to-end tests start the same one.
package app

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/loglimit"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// Config is the complete configuration. Begin with [Default]. A field whose comment names a flag is set by the
// [Setting] of that flag, whose help describes it.
type Config struct {
	Access                        // the settings of NATS
	File       string             // --config; the caller of [Parse] has read it
	Namespace  subjects.Namespace // --namespace
	Listen     string             // --listen
	ListenConf string             // --listen-conf; "" for an embedded server without users

	Data string // --data; one process uses it at a time
	HTTP string // --http

	Grants time.Duration // --grants; 0 is off

	Name     string // --name; "" takes the one kept in Data, or generates one
	Replicas int    // --replicas
	Registry string // --registry; "" is any

	HTTPTokenFile string // --http-token-file; "" demands no token

	MySQL, MySQLFile  string        // --mysql
	MySQLCA           string        // --mysql-ca
	MySQLCert         string        // --mysql-cert
	MySQLKey          string        // --mysql-key
	AutoCreateTags    bool          // --auto-create-tags
	AutoCreatePattern string        // --auto-create-tags=PATTERN, as in [path.Match]; "" is every tag
	TagPoll           time.Duration // --tag-poll
	MaxStep           int64         // --max-step

	Layout       snowflake.Layout // --layout and --epoch
	Site         int              // --site
	Numbers      *workerid.Span   // --numbers; nil is those that the deployment leaves to workers
	Horizon      time.Duration    // --horizon
	MaxClockSkew time.Duration    // --max-clock-skew

	MaxBatch int           // --max-batch
	Deadline time.Duration // --deadline

	LogLevel slog.Level // --log-level, of [Config.NewLog]
	LogJSON  bool       // --log-format=json, of [Config.NewLog]

	// Now returns the time for snowflakes and worker numbers; nil is [time.Now].
	Now func() time.Time
	// Intercept, if set, is called with each request, and reports whether to handle it: see [worker.Config].
	Intercept func(*nats.Msg) bool
	// Version is the version that this program reports.
	Version string
	// Log receives all log lines; nil discards them.
	Log *slog.Logger
	// Ready, if set, is called once, as soon as all modes can issue.
	Ready func(Where)

	given map[string]Given // the texts that [Parse] has read, by flag
}

// Where says where a program that is ready can be reached.
type Where struct {
	URL      string `json:"url"` // of NATS, without password
	Embedded bool   `json:"embedded"`
	HTTP     string `json:"http,omitempty"` // host:port of the monitor; "" if off
	Instance string `json:"instance"`
	Number   int    `json:"number"` // the worker number
}

// DefaultStep is the step, in IDs, of tags that are created without one: that of Leaf's example.
const DefaultStep = 1000

// Default returns the defaults of all settings, without tags created on first use.
func Default() Config {
	c, err := Parse(nil)
	if err != nil {
		panic(err) // a fault in the table of settings, which every test would meet
	}
	c.AutoCreateTags = false
	return c
}

// Validate returns an error that names every fault, or nil.
func (c Config) Validate() error {
	var faults []error
	for _, s := range settings {
		if c.given[s.Flag].unread {
			continue
		}
		if err := s.valid(&c); err != nil {
			faults = append(faults, s.fault(c.given, err))
		}
	}
	return errors.Join(faults...)
}

// NewLog returns a log with the level and the format of the settings, which writes to w. It writes each kind of line at
// most once a minute.
func (c Config) NewLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: spellDurations}
	if c.LogJSON {
		return slog.New(loglimit.New(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(loglimit.New(slog.NewTextHandler(w, opts)))
}

// spellDurations writes durations as 1.5s in JSON too, where slog would write nanoseconds.
func spellDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
