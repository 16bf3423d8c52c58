// Package app is the composition root. It has the table of settings, connects all other packages, and starts and stops
// the whole program in order. The command line and the end-to-end tests start natsid by this package.
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

// Config is the complete configuration. Begin with [Default]. Where a comment names a flag, the Help of its [Setting]
// describes the field.
type Config struct {
	Access                        // connections to NATS
	File       string             // --config; see [ReadFile]
	Namespace  subjects.Namespace // --namespace
	Listen     string             // --listen
	ListenConf string             // --listen-conf; "" for an embedded server without users

	Data string // --data; one process uses it at a time
	HTTP string // --http

	Grants time.Duration // --grants; 0 is off

	Name     string // --name; "" means the one kept in Data, or a generated one
	Replicas int    // --replicas
	Registry string // --registry; "" means any registry

	HTTPTokenFile string // --http-token-file; "" means that no token is needed

	MySQL, MySQLFile  string        // --mysql
	MySQLCA           string        // --mysql-ca
	MySQLCert         string        // --mysql-cert
	MySQLKey          string        // --mysql-key
	AutoCreateTags    bool          // --auto-create-tags
	AutoCreatePattern string        // --auto-create-tags=PATTERN, for [path.Match]; "" matches every tag
	TagPoll           time.Duration // --tag-poll
	MaxStep           int64         // --max-step

	Layout       snowflake.Layout // --layout and --epoch
	Site         int              // --site
	Numbers      *workerid.Span   // --numbers; nil means all that are not set aside for programs
	Horizon      time.Duration    // --horizon
	MaxClockSkew time.Duration    // --max-clock-skew

	MaxBatch int           // --max-batch
	Deadline time.Duration // --deadline

	LogLevel slog.Level // --log-level, for [Config.NewLog]
	LogJSON  bool       // --log-format=json, for [Config.NewLog]

	// Now returns the time for snowflakes and worker numbers; nil means [time.Now].
	Now func() time.Time
	// Intercept, if set, is called with each request, and reports whether the worker handles it: see [worker.Config].
	Intercept func(*nats.Msg) bool
	// Version is natsid's version, as workers report it.
	Version string
	// Log receives all log lines; nil discards them.
	Log *slog.Logger
	// Ready, if set, is called once, as soon as this worker can issue IDs of all modes.
	Ready func(Where)

	given map[string]Given // the argument of [Parse], by flag
}

// Where says where a natsid can be reached, and who it is, once it is ready.
type Where struct {
	URL      string `json:"url"` // of NATS, with xxxxx for user and password
	Embedded bool   `json:"embedded"`
	HTTP     string `json:"http,omitempty"` // host:port of HTTP; "" if off
	Instance string `json:"instance"`
	Number   int    `json:"number"` // the worker number
}

// DefaultStep is the step, in IDs, of tags that are created without one: that of Leaf's example.
const DefaultStep = 1000

// Default returns the defaults of all settings, but creates no tags on first use: AutoCreateTags is false.
func Default() Config {
	c, err := Parse(nil)
	if err != nil {
		panic(err) // only a fault in the table of settings leads here
	}
	c.AutoCreateTags = false
	return c
}

// Validate returns an error that names every setting with a fault, or nil.
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

// NewLog returns a log to w with the level and format of the settings. Lines of one kind are written once a minute at
// most: see [loglimit.New].
func (c Config) NewLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: spellDurations}
	if c.LogJSON {
		return slog.New(loglimit.New(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(loglimit.New(slog.NewTextHandler(w, opts)))
}

// spellDurations makes slog write durations in JSON as in text, such as 1.5s. By default slog writes nanoseconds there.
func spellDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
