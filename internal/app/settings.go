package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A Setting is one setting of a worker: a row of the table below. From the table come the command line and its help,
// the defaults and the validation of [Config], and docs/reference.md.
type Setting struct {
	Flag        string   // name on the command line, without the leading dashes
	Aliases     []string // other names of the flag, from the nats command
	Env         string   // environment variable; the flag overrides it; "" in the table means NATSID_FLAG
	Placeholder string   // shown in the help for the value, if there is no default
	Group       string   // heading above this and other settings of one purpose
	Help        string   // sentences for the reader of a terminal

	Default string // the text of the default; "" for none
	Range   string // the valid values, with their unit; "" if all are valid
	Bare    bool   // the flag needs no value, and --no-FLAG negates it

	in      func(c *Config) any                // returns a pointer to the value, which [read] sets
	set     func(c *Config, text string) error // sets the value in place of [read]
	check   func(c *Config) error              // checks the value; nil if Range is enough
	show    func(c *Config) string             // the value for people, without secrets; nil means its text
	beside  string                             // flag of another setting whose value check also reads; "" for none
	none    bool                               // the empty text is valid, and means none
	file    func(c *Config) any                // for a secret: pointer to the name of its file, set by --FLAG-file
	context string                             // its field in a context of the nats command; "" for none
}

// Settings returns all settings. Those of one group stand together.
func Settings() []Setting { return slices.Clone(settings) }

var settings = slices.Concat(ofAccess, grouped("Connections and data", []Setting{
	{
		Flag: "config", Placeholder: "FILE", in: func(c *Config) any { return &c.File },
		Help: "YAML file with settings, by the names of their flags. `natsid config` checks it.",
	}, {
		Flag: "namespace", Default: string(subjects.DefaultNamespace),
		Range: fmt.Sprintf("1 to %d of A-Z a-z 0-9 - _", subjects.MaxNamespace),
		in:    func(c *Config) any { return &c.Namespace }, check: checkNamespace,
		Help: "First token of all subjects, and prefix of the names of services and buckets.",
	}, {
		Flag: "listen", Default: "127.0.0.1:4222", Range: "host:port", in: func(c *Config) any { return &c.Listen },
		check: checkListen,
		Help: "Address of the embedded NATS server, on this machine. Port 0 picks a free port. " +
			"Others are said in --listen-conf.",
	}, {
		Flag: "listen-conf", Placeholder: "FILE", in: func(c *Config) any { return &c.ListenConf },
		check: checkListenConf,
		Help: "Configuration of nats-server for the embedded one: listen, tls, users, accounts, leafnodes, " +
			"websocket, limits. Its listen takes precedence over --listen. Store, syncs and pings are natsid's; " +
			"cluster and gateway are refused. natsid's own user is that of --user, --creds or --nkey. SIGHUP reads " +
			"it again.",
	}, {
		Flag: "data", Default: "natsid-data", none: true, in: func(c *Config) any { return &c.Data }, check: checkData,
		Help: "Directory of the embedded server's store and of the state file. " +
			"Empty keeps no local state, which needs --nats.",
	}, {
		Flag: "http", Default: "127.0.0.1:8080", Range: "host:port", none: true,
		in: func(c *Config) any { return &c.HTTP }, check: checkHTTP,
		Help: "Address of /healthz, /readyz, /metrics and, at /, the page. Empty serves none of them.",
	}, {
		Flag: "http-token-file", Placeholder: "FILE", in: func(c *Config) any { return &c.HTTPTokenFile },
		Help: "File with the token that the page and /metrics demand, as a bearer token or as the password of any " +
			"user. With it /debug/pprof serves profiles. It is read again for each request.",
	}, {
		Flag: "name", Placeholder: "NAME", in: func(c *Config) any { return &c.Name },
		Help: "Name of this worker, for people. It is generated at the first start and kept in --data.",
	}, {
		Flag: "replicas", Default: "0", Range: "0 to 5 replicas", in: func(c *Config) any { return &c.Replicas },
		Help: "Replicas of each bucket that this worker creates. " +
			"0 means 3, or 1 on a single server.",
	}, {
		Flag: "grants", Default: "30d", Range: "off, or 1h to 3650d", set: setGrants, check: checkGrants,
		Help: "How long the stream of grants keeps which worker was given which IDs, for `natsid explain` and " +
			"`natsid audit`; off writes none. A stream that exists keeps its own limits.",
	}, {
		Flag: "registry", Placeholder: "ID", in: func(c *Config) any { return &c.Registry }, check: checkRegistry,
		Help: "The registry on which this worker must rest, as `natsid status` shows it: on any other it serves " +
			"nothing, and where two registries serve the same subjects this one stays. Without it, the one it finds.",
	},
}), grouped("Segments", []Setting{
	{
		Flag: "mysql", Placeholder: "DSN", in: func(c *Config) any { return &c.MySQL },
		file: func(c *Config) any { return &c.MySQLFile }, show: showMySQL, check: checkDSN,
		Help: "Keep the tags in Leaf's table leaf_alloc: user:password@tcp(host:port)/database, or " +
			"@unix(/path/of/socket) in place of @tcp. " +
			"Without it they are in JetStream KV.",
	}, {
		Flag: "mysql-ca", Placeholder: "FILE", in: func(c *Config) any { return &c.MySQLCA },
		Help: "File with the certificates of the authorities that vouch for MySQL. It demands TLS, as does tls=true " +
			"in the DSN for the system's authorities. All files of MySQL are read again for each connection.",
	}, {
		Flag: "mysql-cert", Placeholder: "FILE", Range: "with --mysql-key",
		in:    func(c *Config) any { return &c.MySQLCert },
		check: func(c *Config) error { return together(c.MySQLCert, c.MySQLKey, "mysql-key") }, beside: "mysql-key",
		Help: "File with the client certificate for MySQL.",
	}, {
		Flag: "mysql-key", Placeholder: "FILE", in: func(c *Config) any { return &c.MySQLKey },
		Help: "File with the key of --mysql-cert.",
	}, {
		Flag: "auto-create-tags", Placeholder: "PATTERN", Bare: true, set: setAutoCreate, show: showAutoCreate,
		check: checkAutoCreate,
		Help: "Create tags on first use: all, with =off none, or with =PATTERN those that match. order.* matches " +
			"order.eu; * no slash. The default is on with the embedded NATS server, and off with --nats.",
	}, {
		Flag: "tag-poll", Default: "1m", Range: "1s to 24h", in: func(c *Config) any { return &c.TagPoll },
		Help: "Interval at which the tags are compared with the store, to find rows that were added, changed or " +
			"removed there. Changes made through natsid arrive at once.",
	}, {
		Flag: "max-step", Default: fmt.Sprint(segment.DefaultMaxStep),
		Range: fmt.Sprintf("1 to %d IDs", int64(segment.MaxStep)), in: func(c *Config) any { return &c.MaxStep },
		Help: "Largest step to which traffic can raise that of a tag. A step doubles while ranges last less than " +
			"15m and halves while they last more than twice as long. It never falls below the tag's own " +
			"step, which may exceed this limit.",
	},
}), grouped("Snowflakes", []Setting{
	{
		Flag: "layout", Default: "leaf", in: func(c *Config) any { return &c.Layout }, check: checkLayout,
		beside: "epoch",
		Help: "How the bits of a snowflake are split: leaf (41+10+12), js53 (41+6+6), article (39+2+7+4+7), " +
			"or widths of time+machine+sequence or time+site+machine+business+sequence, " +
			"followed by @10ms or @1s for longer ticks. All workers of a namespace must share it, and --epoch.",
	}, {
		Flag: "epoch", Placeholder: "TIME", set: setEpoch, show: showEpoch,
		Help: "Start of the time of snowflakes: a date, an RFC 3339 time, or Unix milliseconds. " +
			"The default is the layout's: article has its own, all others have Leaf's.",
	}, {
		Flag: "site", Default: "0", Range: "0 to the layout's sites - 1", in: func(c *Config) any { return &c.Site },
		check: checkSite,
		Help: "Site of this worker, where the layout has site bits. Each site numbers its own machines, " +
			"so sites that cannot reach each other never collide.",
	}, {
		Flag: "numbers", Placeholder: "FIRST-LAST", Range: "numbers of the layout and the site",
		in: func(c *Config) any { return &c.Numbers }, check: checkNumbers,
		Help: "Worker numbers that this worker may take, where others are in use elsewhere, such as by Leaf nodes. " +
			"Without it any of its site that is not for programs. Give it to all workers alike.",
	}, {
		Flag: "horizon", Default: "5m", Range: "1s to 720h", in: func(c *Config) any { return &c.Horizon },
		Help: "How long snowflakes are issued while JetStream is away, at most; two thirds of it at least.",
	}, {
		Flag: "max-clock-skew", Default: "1s", Range: "1ms to 1m", in: func(c *Config) any { return &c.MaxClockSkew },
		Help: "How far the clocks of two workers may differ. A worker whose clock is off by more (1s at least) " +
			"issues no snowflakes until it is right. A worker number without a record is used only after this time.",
	},
}), grouped("Requests and logs", []Setting{
	{
		Flag: "max-batch", Default: "100000", Range: "1 to 1000000 IDs", in: func(c *Config) any { return &c.MaxBatch },
		Help: "Most IDs that one request can get.",
	}, {
		Flag: "deadline", Default: "1.5s", Range: "100ms to 1m", in: func(c *Config) any { return &c.Deadline },
		Help: "Time within which each request is answered, with IDs or an error. Callers must wait longer.",
	}, {
		Flag: "log-level", Default: "info", Range: "debug, info, warn or error",
		in:   func(c *Config) any { return &c.LogLevel },
		Help: "Lowest level that is logged.",
	}, {
		Flag: "log-format", Default: "text", Range: "text or json", set: setLogFormat,
		Help: "Form of a log line.",
	},
}))

// grouped fills in the group and the default variable of each row, and adds a row --FLAG-file for each secret.
func grouped(group string, rows []Setting) []Setting {
	for i := 0; i < len(rows); i++ {
		s := &rows[i]
		s.Group, s.Env = group, cmp.Or(s.Env, "NATSID_"+strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_")))
		for _, alias := range s.Aliases {
			s.Help += " Also --" + alias + "."
		}
		if s.file != nil {
			rows = slices.Insert(rows, i+1, Setting{
				Flag: s.Flag + "-file", Env: s.Env + "_FILE", Placeholder: "FILE", in: s.file,
				Help: "File with what --" + s.Flag + " says.",
			})
		}
	}
	return rows
}
