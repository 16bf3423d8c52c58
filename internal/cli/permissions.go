package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/natsid/natsid/internal/registry/rights"
)

type permissionsCmd struct {
	Role   string   `arg:"" enum:"worker,caller,operator,stage,holder"`
	Format string   `enum:"nats,nsc" default:"nats" placeholder:"FORMAT"`
	Inbox  []string `placeholder:"PREFIX"`

	Repairs     bool
	MakeBuckets bool `negatable:"" default:"true"`

	From, To   string `placeholder:"STREAM"`
	Into       string `default:"stamped.>"`
	DeadLetter string `name:"dead-letter" placeholder:"SUBJECT"`
	Create     bool
}

func (*permissionsCmd) help() help {
	return help{
		summary: "Print what a user of NATS must be allowed to publish and subscribe to.",
		detail: `A worker runs natsid serve. A caller requests IDs. A stage runs natsid stamp, with
the flags that you give here, too. A holder is a program that draws its own
snowflakes. An operator runs the other commands. Deny everything else: nobody needs
more. The rights depend on --namespace, --js-domain, --js-prefix and --inbox-prefix
of the user, and a worker's on --grants: give them here as you give them there.

Who may subscribe to _INBOX.> hears the answers to all others, so give each user an
--inbox-prefix that does not begin with _INBOX and a dot, and give all of these to
the worker's permissions with --inbox.

Formats: nats for the configuration of nats-server, nsc for the command that adds
the user to an account.

Examples:
  natsid permissions worker
  natsid permissions caller --inbox-prefix _INBOX_shop
  natsid permissions stage --from ORDERS --to ORDERS_STAMPED
  natsid permissions worker --inbox _INBOX_shop,_INBOX_operator --format nsc`,
		values: map[string]string{
			"role":         "worker, caller, operator, stage or holder.",
			"format":       "nats or nsc.",
			"inbox":        "For a worker: prefixes of the inboxes of its callers and operators.",
			"repairs":      "For an operator: also the rights of `resume` and `store move`, which write the marks.",
			"make-buckets": "For a worker: it may create the buckets. For a stage: it may create the bucket of hints.",
			"from":         "For a stage: the stream to copy.",
			"to":           "For a stage: the stream to copy to.",
			"into":         "For a stage: the subjects of copies.",
			"dead-letter":  "For a stage: the subject of dead letters, if there is one.",
			"create":       "For a stage: it may create the target.",
		},
	}
}

func (c *permissionsCmd) Run(s *session) error {
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	for _, prefix := range c.Inbox {
		if prefix == "" || strings.ContainsAny(prefix, "*> \t'\"") {
			return usage(fmt.Errorf("--inbox %q: want a prefix without wildcards, such as _INBOX_shop", prefix))
		}
	}
	role := rights.Role(c.Role)
	if role == rights.Stage && (c.From == "" || c.To == "") {
		return usage(errors.New("a stage wants --from and --to, its streams"))
	}
	all := rights.Of(role, rights.Deployment{
		Namespace: cfg.Namespace, InboxPrefix: cfg.InboxPrefix, ReplyTo: c.Inbox,
		JSDomain: cfg.JSDomain, JSPrefix: cfg.JSPrefix,
		NoGrants:     cfg.Grants == 0,
		MakesBuckets: c.MakeBuckets, Repairs: c.Repairs, Stamps: rights.Pipeline{
			From: c.From, To: c.To, Into: c.Into, DeadLetter: c.DeadLetter, Creates: c.Create,
		},
	})
	return s.print(rightsJSON{role, all}, func(out *sheet) {
		if c.Format == "nsc" {
			printForNSC(out, role, all)
			return
		}
		printForServer(out, role, all)
	})
}

// printForServer prints the rights of a user as the configuration of nats-server has them.
func printForServer(out io.Writer, role rights.Role, all rights.Rights) {
	fmt.Fprintf(out, "# %s\npermissions: {\n", role)
	for _, part := range []struct {
		name  string
		given []rights.Right
	}{{"publish", all.Publish}, {"subscribe", all.Subscribe}} {
		fmt.Fprintf(out, "  %s: { allow: [\n", part.name)
		why := ""
		for _, r := range part.given {
			if r.Why != why {
				why = r.Why
				fmt.Fprintf(out, "    # %s\n", why)
			}
			fmt.Fprintf(out, "    %q\n", r)
		}
		fmt.Fprintln(out, "  ] }")
	}
	fmt.Fprintln(out, "}")
}

// printForNSC prints a command of nsc for a shell. Subjects have neither commas nor quotes, so none is escaped.
func printForNSC(out io.Writer, role rights.Role, all rights.Rights) {
	fmt.Fprintf(out, "nsc add user --name %s \\\n  --allow-pub '%s' \\\n  --allow-sub '%s'\n",
		role, strings.Join(rights.Texts(all.Publish), ","), strings.Join(rights.Texts(all.Subscribe), ","))
}

// rightsJSON is the output of `natsid permissions --json`.
type rightsJSON struct {
	Role rights.Role `json:"role"`
	rights.Rights
}
