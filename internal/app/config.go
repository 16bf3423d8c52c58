// Package app is the composition root: it has the table of settings, connects all packages, and starts and stops the
// whole program in order. The command line and the end-to-end tests start natsid by it.
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

// Config is the complete configuration. Begin with [Default]. Where a comment names a flag, the help of its [Setting]
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
	Registry string // --registry; "" is any

	HTTPTokenFile string // --http-token-file; "" means that no token is needed

	MySQL, MySQLFile  string        // --mysql
	MySQLCA           string        // --mysql-ca
	MySQLCert         string        // --mysql-cert
	MySQLKey          string        // --mysql-key
	AutoCreateTags    bool          // --auto-create-tags
	AutoCreatePattern string        // --auto-create-tags=PATTERN, of [path.Match]; "" means every tag
	TagPoll           time.Duration // --tag-poll
	MaxStep           int64         // --max-step

	Layout       snowflake.Layout // --layout and --epoch
	Site         int              // --site
	Numbers      *workerid.Span   // --numbers; nil means all that the deployment leaves to workers
	Horizon      time.Duration    // --horizon
	MaxClockSkew time.Duration    // --max-clock-skew

	MaxBatch int           // --max-batch
	Deadline time.Duration // --deadline

	LogLevel slog.Level // --log-level, for [Config.NewLog]
	LogJSON  bool       // --log-format=json, for [Config.NewLog]

	// Now returns the time for snowflakes and worker numbers; nil means [time.Now].
	Now func() time.Time
	// Intercept, if set, is called with each request, and reports whether to handle it: see [worker.Config].
	Intercept func(*nats.Msg) bool
	// Version is the version that this program reports.
	Version string
	// Log receives all log lines; nil discards them.
	Log *slog.Logger
	// Ready, if set, is called once, as soon as all modes can issue.
	Ready func(Where)

	given map[string]Given // the argument of [Parse], by flag
}

// Where says where a natsid that is ready can be reached.
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

// NewLog returns a log with the level and format of the settings. It writes to w, each kind of line at most once a
// minute.
func (c Config) NewLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel, ReplaceAttr: spellDurations}
	if c.LogJSON {
		return slog.New(loglimit.New(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(loglimit.New(slog.NewTextHandler(w, opts)))
}

// spellDurations makes slog write durations as 1.5s in JSON, too, where its default is nanoseconds.
func spellDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
