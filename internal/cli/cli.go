// Package cli is the command line of natsid: a file per command, with its flags, its help and its output. The flags
// of "natsid serve" come from the table of settings in internal/app.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// A commandLine is the tree of commands. Help is not in its struct tags, but in the method help of each command.
type commandLine struct {
	JSON        bool
	ShowVersion versionFlag `name:"version"`

	Serve    serveCmd    `cmd:"" default:"withargs"`
	Get      getCmd      `cmd:""`
	Tag      tagCmd      `cmd:""`
	Throttle throttleCmd `cmd:""`
	Store    storeCmd    `cmd:""`
	Resume   resumeCmd   `cmd:""`
	Explain  explainCmd  `cmd:""`
	Audit    auditCmd    `cmd:""`
	Status   statusCmd   `cmd:""`
	Workers  workersCmd  `cmd:""`
	Health   healthCmd   `cmd:""`
	Stamp    stampCmd    `cmd:""`
	Leaf     leafCmd     `cmd:""`
	Bench    benchCmd    `cmd:""`
	Decode   decodeCmd   `cmd:""`
	Read     readCmd     `cmd:""`
	Number   numberCmd   `cmd:""`
	Layout   layoutCmd   `cmd:""`
	Config   configCmd   `cmd:""`

	Help        helpCmd        `cmd:""`
	Permissions permissionsCmd `cmd:""`
	TestServer  testServerCmd  `cmd:"" name:"test-server"`
}

func (*commandLine) help() help {
	return help{
		summary: "Unique 64-bit IDs over NATS: dense numbers per tag, or snowflakes.\n\n" +
			"`natsid` alone is a whole service on this machine. Any NATS client can request IDs: " +
			"`nats request id.segment.order \"\"`.",
		values: map[string]string{"json": "Print JSON, for programs.", "version": "Print the version."},
	}
}

type tagCmd struct {
	Create tagCreateCmd `cmd:""`
	Update tagUpdateCmd `cmd:""`
	Delete tagDeleteCmd `cmd:""`
	List   tagListCmd   `cmd:""`
	Stats  tagStatsCmd  `cmd:""`
}

func (*tagCmd) help() help { return help{summary: "Manage tags."} }

type storeCmd struct {
	Move storeMoveCmd `cmd:""`
}

func (*storeCmd) help() help { return help{summary: "Move the tags to another store."} }

type session struct {
	ctx        context.Context
	line       commandLine
	connection bool // the command is `natsid help connection`
	output
	settings
}

// errorText returns the text of an error for a person. It drops the prefix "client: " and, if a worker refused a
// request, adds the command that helps.
func errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "client: ")
	e, ok := errors.AsType[*subjects.Error](err)
	switch {
	case !ok:
	case e.Code == subjects.BadRequest:
		text = inFlags(text)
	case e.Code == subjects.NotFound:
		text += ": check its name, or create it with `natsid tag create`"
	case e.Code == subjects.Conflict:
		text += "; `natsid tag update` changes it"
	case e.Code == subjects.Unavailable && e.RetryAfter > 0:
		text += "; `natsid status` says what to type"
	}
	return text
}

// These match a URL or a DSN up to its @, which may contain a password or a token to hide. inURL is for all errors.
// inArgument is for those of the parser, which repeat arguments, so it also matches text without ://.
var (
	inURL      = regexp.MustCompile(`://\S*@`)
	inArgument = regexp.MustCompile(`[^\s"'=]*:\S*@`)
)

// Main runs one command line and returns its exit code, one of [Exits]. If ctx ends, the command ends.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	// For --help, kong calls its exit hook while it parses. The hook panics with the code, to get here and not to
	// os.Exit.
	type exit int
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exit)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	stdout, stderr = plain{stdout}, plain{stderr}
	s := &session{ctx: ctx, output: output{stdout: stdout, stderr: stderr}}
	err := s.run(newParser(s, func(code int) { panic(exit(code)) }), args)
	code = exitCode(err)
	if end, is := errors.AsType[programEnd](err); err != nil && (!is || end.error != nil) {
		fmt.Fprintf(s.stderr, "natsid: %s\n", inURL.ReplaceAllString(errorText(err), "://xxxxx@"))
	}
	if isA[usageError](err) {
		fmt.Fprintln(s.stderr, "Run `natsid --help`, or --help after a command, to see what it takes.")
	}
	return code
}

func newParser(s *session, exit func(int)) *kong.Kong {
	k, err := kong.New(&s.line,
		kong.Name("natsid"),
		kong.Writers(s.stdout, s.stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Help(s.printHelp),
		kong.Vars{"default_step": strconv.Itoa(app.DefaultStep)},
		kong.Bind(s))
	if err == nil { // not as options of kong: it would search all texts for variables
		addSettings(k)
		err = addHelp(k.Model.Node)
	}
	if err != nil {
		panic(err) // commandLine is wrong: every test would meet this
	}
	return k
}

func (s *session) run(parser *kong.Kong, args []string) (err error) {
	if s.call, err = parser.Parse(args); err != nil {
		err = cmp.Or(misspelt(parser.Model.Node, args, err), inWords(err))
		return usage(errors.New(inArgument.ReplaceAllString(err.Error(), "xxxxx@")))
	}
	s.json = s.line.JSON
	s.given = givenTo(s.call)
	s.addFile()
	err = s.call.Run()
	if missing := s.missing(); missing != nil && err != nil {
		return missing // err is only its consequence
	}
	return err
}

// missing returns, as an error, a right that NATS refused although the command needs it; nil if there is none.
func (s *session) missing() error {
	if missing, ok := errors.AsType[*buckets.RightError](context.Cause(s.ctx)); ok {
		if isRepair(s.namespace(), missing.Subject) {
			return fmt.Errorf("%w, this right for operator --repairs", missing)
		}
		return missing
	}
	return nil
}
