// Package cli is the command line of natsid: flags and their environment, and
// what people read.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/natsid/natsid/subjects"
)

// commandLine is all commands and flags. Flags above the commands belong to
// every command.
type commandLine struct {
	NATS      string `name:"nats" env:"NATS_URL" placeholder:"URL[,URL]" help:"NATS to join. Serve runs a nats-server of its own without it; other commands go to nats://127.0.0.1:4222."`
	NATSCreds string `name:"nats-creds" env:"NATS_CREDS" placeholder:"FILE" help:"User credentials for NATS."`
	Namespace string `env:"NATSID_NAMESPACE" default:"id" help:"First token of all subjects, and prefix of services and buckets."`

	Serve serveCmd `cmd:"" default:"withargs" help:"Serve IDs; the default command."`
	Get   struct {
		Segment   getSegmentCmd   `cmd:"" help:"IDs of a tag."`
		Snowflake getSnowflakeCmd `cmd:"" help:"Snowflakes."`
	} `cmd:"" help:"Ask for IDs."`
	Tag struct {
		Create tagCreateCmd `cmd:"" help:"Make a tag, or make a deleted one again."`
		Update tagUpdateCmd `cmd:"" help:"Change a tag's step or description, or raise its next ID."`
		Delete tagDeleteCmd `cmd:"" help:"Stop serving a tag. Made again, it goes on above its old IDs."`
		List   tagListCmd   `cmd:"" help:"List the tags."`
	} `cmd:"" help:"Look after tags."`
	Workers workersCmd `cmd:"" help:"List the worker numbers, who has them, and until when."`
	Decode  decodeCmd  `cmd:"" help:"Take a snowflake apart."`
	Layout  layoutCmd  `cmd:"" help:"Plan or describe the layout of snowflakes."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// A session is what a command works with.
type session struct {
	ctx            context.Context
	stdout, stderr io.Writer
	line           *commandLine
	natsFromEnv    bool // --nats was not given, NATS_URL was
}

// usageError marks an error in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs one command line and returns the exit code: 0 if all went well, 1
// if the command failed, 2 if it was called wrongly. It returns when ctx ends.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	// --help leaves through kong's exit hook, in the midst of parsing.
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
	s := &session{ctx: ctx, stdout: stdout, stderr: stderr, line: new(commandLine)}
	parser, err := kong.New(s.line,
		kong.Name("natsid"),
		kong.Description("Unique 64-bit IDs over NATS: from ranges per tag, or snowflakes.\n\n"+
			"`natsid` alone is a whole service on this machine. Ask it with any NATS client: `nats request id.segment.order \"\"`."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Bind(s))
	if err != nil {
		panic(err) // a fault in commandLine, which every test would meet
	}
	call, err := parser.Parse(args)
	if err == nil {
		s.natsFromEnv = s.line.NATS != "" && !given(call, "nats")
		err = usage(subjects.Namespace(s.line.Namespace).Check())
	} else {
		err = usage(err)
	}
	if err == nil {
		err = call.Run()
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "natsid: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "Run `natsid --help`, or --help after a command, for what can be given.")
		return 2
	}
	return 1
}

// given reports whether a flag stands on the command line.
func given(call *kong.Context, flag string) bool {
	for _, p := range call.Path {
		if p.Flag != nil && p.Flag.Name == flag {
			return true
		}
	}
	return false
}

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}
