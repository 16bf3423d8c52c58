package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Access has the address of NATS and the credentials of this program. Its flags are named as in the nats command.
// Its files are read again for each connection.
type Access struct {
	NATS    string // --nats; "" means an embedded NATS server
	Context string // --context; [Resolve] puts its settings into the other fields

	NATSUser, NATSPassword, NATSPasswordFile string // --user, --password; a user without a password is a token
	NATSToken, NATSTokenFile                 string // --token
	NATSCreds                                string // --creds
	NATSNKey                                 string // --nkey

	NATSCA, NATSCert, NATSKey string // --tlsca, --tlscert, --tlskey
	InboxPrefix               string // --inbox-prefix
	JSDomain, JSPrefix        string // --js-domain, --js-prefix
}

// GroupNATS is the [Setting.Group] of the settings that every command has.
const GroupNATS = "NATS"

var ofAccess = grouped(GroupNATS, []Setting{
	{
		Flag: "nats", Aliases: []string{"server"}, Env: "NATS_URL", context: "url", Placeholder: "URL[,URL]",
		in: func(c *Config) any { return &c.NATS }, show: func(c *Config) string { return Redact(c.NATS) },
		check: checkURLs,
		Help: "URLs of the NATS servers to join: nats, tls, ws or wss. Without it serve runs an embedded NATS " +
			"server, and other commands connect to nats://127.0.0.1:4222.",
	}, {
		Flag: "context", Env: "NATS_CONTEXT", Placeholder: "NAME", in: func(c *Config) any { return &c.Context },
		Help: "Context of the nats command: a name, or a file in .json. " +
			"Flags, environment and configuration file take precedence over it. " +
			"The one of `nats context select` is not taken by itself.",
	}, {
		Flag: "user", Env: "NATS_USER", context: "user", Placeholder: "USER",
		in: func(c *Config) any { return &c.NATSUser }, show: showUser,
		Help: "User for NATS. Without a password it is a token.",
	}, {
		Flag: "password", Env: "NATS_PASSWORD", context: "password", Placeholder: "PASSWORD",
		in: func(c *Config) any { return &c.NATSPassword }, file: func(c *Config) any { return &c.NATSPasswordFile },
		check: checkPassword, beside: "password-file",
		Help: "Password of --user.",
	}, {
		Flag: "token", Env: "NATS_TOKEN", context: "token", Placeholder: "TOKEN",
		in: func(c *Config) any { return &c.NATSToken }, file: func(c *Config) any { return &c.NATSTokenFile },
		Help: "Token for NATS.",
	}, {
		Flag: "creds", Env: "NATS_CREDS", context: "creds", Placeholder: "FILE",
		in:   func(c *Config) any { return &c.NATSCreds },
		Help: "File with the user's JWT and seed. All files of this group are read again for each connection.",
	}, {
		Flag: "nkey", Env: "NATS_NKEY", context: "nkey", Placeholder: "FILE",
		in:   func(c *Config) any { return &c.NATSNKey },
		Help: "File with the seed of the user's nkey.",
	}, {
		Flag: "tlsca", Env: "NATS_CA", context: "ca", Placeholder: "FILE", in: func(c *Config) any { return &c.NATSCA },
		Help: "File with the authorities' certificates for NATS, in place of the system's.",
	}, {
		Flag: "tlscert", Env: "NATS_CERT", context: "cert", Placeholder: "FILE", Range: "with --tlskey",
		in:    func(c *Config) any { return &c.NATSCert },
		check: func(c *Config) error { return together(c.NATSCert, c.NATSKey, "tlskey") }, beside: "tlskey",
		Help: "File with the client certificate for NATS.",
	}, {
		Flag: "tlskey", Env: "NATS_KEY", context: "key", Placeholder: "FILE",
		in:   func(c *Config) any { return &c.NATSKey },
		Help: "File with the key of --tlscert.",
	}, {
		Flag: "inbox-prefix", context: "inbox_prefix", Placeholder: "SUBJECT", Range: "a subject",
		in: func(c *Config) any { return &c.InboxPrefix }, check: checkInbox,
		Help: "First tokens of the subjects of replies, in place of _INBOX. " +
			"Users with prefixes of their own cannot read each other's replies.",
	}, {
		Flag: "js-domain", context: "jetstream_domain", Placeholder: "DOMAIN", Range: "one token",
		in: func(c *Config) any { return &c.JSDomain }, check: checkDomain,
		Help: "JetStream domain of the buckets, if another than the server's, as from a leaf node.",
	}, {
		Flag: "js-prefix", Aliases: []string{"js-api-prefix"}, context: "jetstream_api_prefix", Placeholder: "SUBJECT",
		Range: "a subject", in: func(c *Config) any { return &c.JSPrefix }, check: checkPrefix,
		Help: "Subject under which the JetStream of another account is imported, in place of $JS.API. " +
			"Its $KV subjects are imported under it, too.",
	},
})

// showUser returns the user, or xxxxx if the user is a token.
func showUser(c *Config) string {
	if c.NATSUser != "" && c.NATSPassword == "" && c.NATSPasswordFile == "" {
		return hidden
	}
	return c.NATSUser
}

func checkPassword(c *Config) error {
	if c.NATSUser == "" && (c.NATSPassword != "" || c.NATSPasswordFile != "") {
		return errors.New("belongs to --user, which is missing")
	}
	return nil
}

// checkURLs returns an error for a list of URLs with which a connection can never succeed.
func checkURLs(c *Config) error {
	var web, plain bool
	for u := range strings.SplitSeq(c.NATS, ",") {
		scheme, _, ok := strings.Cut(strings.ToLower(strings.TrimSpace(u)), "://")
		switch {
		case ok && (scheme == "ws" || scheme == "wss"):
			web = true
		case !ok || scheme == "nats" || scheme == "tls":
			plain = true
		default:
			return fmt.Errorf("%q: want URLs that begin with nats, tls, ws or wss", Redact(u))
		}
	}
	if web && plain {
		return errors.New("has URLs of WebSockets and others: give those of one kind")
	}
	return nil
}

func checkInbox(c *Config) error {
	p := c.InboxPrefix
	if strings.HasPrefix(p+".", string(c.Namespace)+".") || strings.Contains("."+p, ".$") {
		return fmt.Errorf("%q: workers publish no answers there, for fear of their own subjects; "+
			"want tokens such as _INBOX_worker", p)
	}
	if p != "" && (strings.ContainsAny(p, "*> \t\r\n") || slices.Contains(strings.Split(p, "."), "")) {
		return fmt.Errorf("%q: want tokens without wildcards, such as _INBOX_worker", p)
	}
	return nil
}

// checkDomain checks the domain of JetStream. It becomes a token of subjects, so it has no dots, wildcards or spaces.
func checkDomain(c *Config) error {
	if strings.ContainsAny(c.JSDomain, ".*> \t") {
		return fmt.Errorf("%q: want the name of a domain, as `nats account info` shows it", c.JSDomain)
	}
	return nil
}

func checkPrefix(c *Config) error {
	p := c.JSPrefix
	if strings.ContainsAny(p, "*> \t") || strings.HasPrefix(p, ".") || strings.Contains(p, "..") {
		return fmt.Errorf("%q: want a subject without wildcards, such as JS.hub.API", p)
	}
	return nil
}

// shown returns, for messages, where the credentials of this program were given.
func (c *Config) shown() string {
	var names []string
	if strings.Contains(c.NATS, "@") {
		names = append(names, "the user in "+place("nats", c.given))
	}
	for _, flag := range []string{"user", "token", "token-file", "creds", "nkey", "tlscert"} {
		if c.given[flag].Text != "" {
			names = append(names, place(flag, c.given))
		}
	}
	if names == nil {
		return "whether it wants one of --user, --token, --creds, --nkey and --tlscert, of which none is given"
	}
	return strings.Join(names, " and ")
}
