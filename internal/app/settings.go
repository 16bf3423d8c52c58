package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A Setting is one setting of a worker, declared once, in the table below. The command line and its help, the defaults
// and the validation of [Config], and docs/reference.md are made from the table.
type Setting struct {
	Flag        string   // name on the command line, without the leading dashes
	Aliases     []string // the nats command's names for the flag
	Env         string   // environment variable; the flag takes precedence
	Placeholder string   // stands for the value in the help if there is no default
	Group       string   // group of settings of one purpose
	Help        string   // sentences for the reader of a terminal

	Default string // in its written form; "" for none
	Range   string // the valid values, with their unit; "" if all are
	Bare    bool   // the flag may stand without a value, and be negated with --no-

	field field
	file  func(*Config) *string // for a secret: the file that holds it, set by --FLAG-file
}

// Groups of settings.
const (
	groupWorker     = "Connections and data"
	groupSegments   = "Segments"
	groupSnowflakes = "Snowflakes"
	groupRequests   = "Requests and logs"
)

// Settings returns all settings, those of one group together.
func Settings() []Setting { return slices.Clone(settings) }

var settings = declared(slices.Concat(ofAccess, []Setting{
	{
		Flag: "config", Env: "NATSID_CONFIG", Group: groupWorker, Placeholder: "FILE",
		Help:  "YAML file with settings, by the names of their flags. `natsid config` checks it.",
		field: text(func(c *Config) *string { return &c.File }, ""),
	}, {
		Flag: "namespace", Env: "NATSID_NAMESPACE", Group: groupWorker,
		Help: "First token of all subjects, and prefix of the names of services and buckets.",
		field: text(func(c *Config) *subjects.Namespace { return &c.Namespace }, subjects.DefaultNamespace).
			checked(fmt.Sprintf("1 to %d of A-Z a-z 0-9 - _", subjects.MaxNamespace), checkNamespace),
	}, {
		Flag: "listen", Env: "NATSID_LISTEN", Group: groupWorker,
		Help: "Address of the embedded NATS server, on this machine. Port 0 picks a free port. " +
			"Others are said in --listen-conf.",
		field: text(func(c *Config) *string { return &c.Listen }, "127.0.0.1:4222").checked("host:port", checkListen),
	}, {
		Flag: "listen-conf", Env: "NATSID_LISTEN_CONF", Group: groupWorker, Placeholder: "FILE",
		Help: "Configuration of nats-server for the embedded one: listen, tls, users, accounts, leafnodes, " +
			"websocket, limits. Its listen takes precedence over --listen. Store, syncs and pings are natsid's; " +
			"cluster and gateway are refused. natsid's own user is that of --user, --creds or --nkey. SIGHUP reads " +
			"it again.",
		field: text(func(c *Config) *string { return &c.ListenConf }, "").checked("", checkListenConf),
	}, {
		Flag: "data", Env: "NATSID_DATA", Group: groupWorker,
		Help: "Directory of the embedded server's store and of the state file. " +
			"Empty keeps no local state, which needs --nats.",
		field: text(func(c *Config) *string { return &c.Data }, "natsid-data").checked("", checkData).orNone(),
	}, {
		Flag: "http", Env: "NATSID_HTTP", Group: groupWorker,
		Help: "Address of /healthz, /readyz, /metrics and, at /, the page. Empty serves none of them.",
		field: text(func(c *Config) *string { return &c.HTTP }, "127.0.0.1:8080").checked("host:port", checkHTTP).
			orNone(),
	}, {
		Flag: "http-token-file", Env: "NATSID_HTTP_TOKEN_FILE", Group: groupWorker, Placeholder: "FILE",
		Help: "File with the token that the page and /metrics demand, as a bearer token or as the password of any " +
			"user. With it /debug/pprof serves profiles. It is read again for each request.",
		field: text(func(c *Config) *string { return &c.HTTPTokenFile }, ""),
	}, {
		Flag: "name", Env: "NATSID_NAME", Group: groupWorker, Placeholder: "NAME",
		Help:  "Name of this worker, for people. It is generated at the first start and kept in --data.",
		field: text(func(c *Config) *string { return &c.Name }, ""),
	}, {
		Flag: "replicas", Env: "NATSID_REPLICAS", Group: groupWorker,
		Help: "Replicas of each bucket that this worker creates. " +
			"0 means 3, or 1 on a single server.",
		field: number(func(c *Config) *int { return &c.Replicas }, "replicas", 0, 0, 5),
	}, {
		Flag: "grants", Env: "NATSID_GRANTS", Group: groupWorker,
		Help: "How long the stream of grants keeps which worker was given which IDs, for `natsid explain` and " +
			"`natsid audit`; off writes none. A stream that exists keeps its own limits.",
		field: daysOrOff(func(c *Config) *time.Duration { return &c.Grants }, 30, 3650),
	}, {
		Flag: "registry", Env: "NATSID_REGISTRY", Group: groupWorker, Placeholder: "ID",
		Help: "The registry on which this worker must rest, as `natsid status` shows it: on any other it serves " +
			"nothing, and where two registries serve the same subjects this one stays. Without it, the one it finds.",
		field: text(func(c *Config) *string { return &c.Registry }, "").checked("", checkRegistry),
	}, {
		Flag: "mysql", Env: "NATSID_MYSQL", Group: groupSegments, Placeholder: "DSN",
		Help: "Keep the tags in Leaf's table leaf_alloc: user:password@tcp(host:port)/database, or " +
			"@unix(/path/of/socket) in place of @tcp. " +
			"Without it they are in JetStream KV.",
		field: text(func(c *Config) *string { return &c.MySQL }, "").checked("", checkDSN).shownAs(showMySQL),
		file:  func(c *Config) *string { return &c.MySQLFile },
	}, {
		Flag: "mysql-ca", Env: "NATSID_MYSQL_CA", Group: groupSegments, Placeholder: "FILE",
		Help: "File with the certificates of the authorities that vouch for MySQL. It demands TLS, as does tls=true " +
			"in the DSN for the system's authorities. All files of MySQL are read again for each connection.",
		field: text(func(c *Config) *string { return &c.MySQLCA }, ""),
	}, {
		Flag: "mysql-cert", Env: "NATSID_MYSQL_CERT", Group: groupSegments, Placeholder: "FILE",
		Help: "File with the client certificate for MySQL.",
		field: text(func(c *Config) *string { return &c.MySQLCert }, "").
			together("mysql-key", func(c *Config) (string, string) { return c.MySQLCert, c.MySQLKey }),
	}, {
		Flag: "mysql-key", Env: "NATSID_MYSQL_KEY", Group: groupSegments, Placeholder: "FILE",
		Help:  "File with the key of --mysql-cert.",
		field: text(func(c *Config) *string { return &c.MySQLKey }, ""),
	}, {
		Flag: "auto-create-tags", Env: "NATSID_AUTO_CREATE_TAGS", Group: groupSegments, Placeholder: "PATTERN",
		Help: "Create tags on first use: all, with =off none, or with =PATTERN those that match. order.* matches " +
			"order.eu; * no slash. The default is on with the embedded NATS server, and off with --nats.",
		Bare:  true,
		field: field{set: setAutoCreate, check: checkAutoCreate, show: showAutoCreate},
	}, {
		Flag: "tag-poll", Env: "NATSID_TAG_POLL", Group: groupSegments,
		Help: "Interval at which the tags are compared with the store, to find rows that were added, changed or " +
			"removed there. Changes made through natsid arrive at once.",
		field: span(func(c *Config) *time.Duration { return &c.TagPoll }, time.Minute, time.Second, 24*time.Hour),
	}, {
		Flag: "max-step", Env: "NATSID_MAX_STEP", Group: groupSegments,
		Help: "Largest step to which traffic can raise that of a tag. A step doubles while ranges last less than " +
			"15m and halves while they last more than twice as long. It never falls below the tag's own " +
			"step, which may exceed this limit.",
		field: number(func(c *Config) *int64 { return &c.MaxStep }, "IDs", segment.DefaultMaxStep, 1, segment.MaxStep),
	}, {
		Flag: "layout", Env: "NATSID_LAYOUT", Group: groupSnowflakes,
		Help: "How the bits of a snowflake are split: leaf (41+10+12), js53 (41+6+6), article (39+2+7+4+7), " +
			"or widths of time+machine+sequence or time+site+machine+business+sequence, " +
			"followed by @10ms or @1s for longer ticks. All workers of a namespace must share it, and --epoch.",
		field: field{standard: "leaf", set: setLayout, check: checkLayout, beside: "epoch"},
	}, {
		Flag: "epoch", Env: "NATSID_EPOCH", Group: groupSnowflakes, Placeholder: "TIME",
		Help: "Start of the time of snowflakes: a date, an RFC 3339 time, or Unix milliseconds. " +
			"The default is the layout's: article has its own, all others have Leaf's.",
		field: field{set: setEpoch, show: showEpoch},
	}, {
		Flag: "site", Env: "NATSID_SITE", Group: groupSnowflakes,
		Help: "Site of this worker, where the layout has site bits. Each site numbers its own machines, " +
			"so sites that cannot reach each other never collide.",
		field: number(func(c *Config) *int { return &c.Site }, "", 0, 0, 1<<30).
			checked("0 to the layout's sites - 1", checkSite),
	}, {
		Flag: "numbers", Env: "NATSID_NUMBERS", Group: groupSnowflakes, Placeholder: "FIRST-LAST",
		Help: "Worker numbers that this worker may take, where others are in use elsewhere, such as by Leaf nodes. " +
			"Without it any of its site that is not for programs. Give it to all workers alike.",
		field: field{set: setNumbers, check: checkNumbers, limits: "numbers of the layout and the site"},
	}, {
		Flag: "horizon", Env: "NATSID_HORIZON", Group: groupSnowflakes,
		Help: "How long snowflakes are issued while JetStream is away, at most; two thirds of it at least.",
		field: span(func(c *Config) *time.Duration { return &c.Horizon },
			5*time.Minute, time.Second, 30*24*time.Hour),
	}, {
		Flag: "max-clock-skew", Env: "NATSID_MAX_CLOCK_SKEW", Group: groupSnowflakes,
		Help: "How far the clocks of two workers may differ. A worker whose clock is off by more (1s at least) " +
			"issues no snowflakes until it is right. A worker number without a record is used only after this time.",
		field: span(func(c *Config) *time.Duration { return &c.MaxClockSkew },
			time.Second, time.Millisecond, time.Minute),
	}, {
		Flag: "max-batch", Env: "NATSID_MAX_BATCH", Group: groupRequests,
		Help:  "Most IDs that one request can get.",
		field: number(func(c *Config) *int { return &c.MaxBatch }, "IDs", 100_000, 1, 1_000_000),
	}, {
		Flag: "deadline", Env: "NATSID_DEADLINE", Group: groupRequests,
		Help: "Time within which each request is answered, with IDs or an error. Callers must wait longer.",
		field: span(func(c *Config) *time.Duration { return &c.Deadline },
			1500*time.Millisecond, 100*time.Millisecond, time.Minute),
	}, {
		Flag: "log-level", Env: "NATSID_LOG_LEVEL", Group: groupRequests,
		Help: "Lowest level that is logged.",
		field: field{standard: "info", limits: "debug, info, warn or error",
			set: func(c *Config, text string) error { return c.LogLevel.UnmarshalText([]byte(text)) }},
	}, {
		Flag: "log-format", Env: "NATSID_LOG_FORMAT", Group: groupRequests,
		Help:  "Form of a log line.",
		field: field{standard: "text", limits: "text or json", set: setLogFormat},
	},
}))

// declared fills in the columns of each row that follow from its field.
func declared(rows []Setting) []Setting {
	for i := 0; i < len(rows); i++ {
		s := &rows[i]
		s.Default, s.Range = s.field.standard, s.field.limits
		for _, alias := range s.Aliases {
			s.Help += " Also --" + alias + "."
		}
		if s.file != nil {
			rows = slices.Insert(rows, i+1, inFile(*s))
		}
	}
	return rows
}

// inFile returns the setting that names a file with the value of another setting.
func inFile(s Setting) Setting {
	flag, file := s.Flag, s.file
	return Setting{
		Flag: flag + "-file", Env: s.Env + "_FILE", Group: s.Group, Placeholder: "FILE",
		Help:  "File with what --" + flag + " says.",
		field: text(file, ""),
	}
}

// shorten writes a duration without units that are zero: 1m, not 1m0s.
func shorten(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
