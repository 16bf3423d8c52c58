package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/holder"
	"github.com/natsid/natsid/internal/supervise"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

// numberCmd also has the flags of those settings for which commandsOf names the command number.
type numberCmd struct {
	Env        []string      `sep:"none" placeholder:"NAME"`
	Bits       int           `default:"-1" placeholder:"N"`
	Offset     int           `default:"-1" placeholder:"N"`
	Quarantine time.Duration `default:"1h"`
	Program    []string      `arg:"" passthrough:""`
}

func (*numberCmd) help() help {
	return help{
		summary: "Run a program that makes IDs by itself, with a worker number that no other has.",
		detail: `The program finds the number in NATSID_WORKER_NUMBER. natsid renews it, passes
signals on, reaps processes as PID 1, and ends with the program's exit code. In the
foreground of a terminal it passes neither SIGINT nor SIGQUIT on: the terminal sends
them to the program itself.
If the number cannot be renewed, it warns when half of the window is left, and sends
SIGTERM 10 s before the end, and SIGKILL at the end; its exit code is 4 then.

This promises less than a worker or package number does. A program that was
paused may wake up and make IDs before it is killed: so a number rests for
--quarantine, unless all processes of its program were seen to end in time. And
natsid cannot keep a program's generator from repeating IDs when the clock is set
back.

The user of NATS needs the rights of "natsid permissions holder".

Examples:
  natsid number -- java -jar app.jar
  natsid number --env NODE_ID -- app    # sets NODE_ID, too
  natsid number --bits 5 -- app         # a number from 0 to 31`,
		values: map[string]string{
			"env": "Set this variable to the number, too. May be repeated.",
			"bits": "How many bits the program has for its number. The default is those of the layout. The number " +
				"is one of natsid's numbers minus --offset.",
			"offset": "What is subtracted from natsid's number. The default is 0 or, with --bits, the middle of a " +
				"site's numbers. Programs whose IDs must differ need the same offset.",
			"quarantine": "How long a number rests after an end that was not clean. It must be longer than a program " +
				"may be paused. Valid: 0s to 720h.",
			"program": "The program and its arguments.",
		},
	}
}

// A programEnd is the exit code of natsid number. The error says why natsid ended the program, or could not run it;
// it is nil if the program ended by itself.
type programEnd struct {
	error
	code int
}

// check returns the path of the program, or an error about the arguments.
func (c *numberCmd) check() (path string, err error) {
	if c.Program[0] == "--" {
		c.Program = c.Program[1:]
	}
	switch {
	case len(c.Program) == 0:
		return "", usage(errors.New("name a program, such as natsid number -- java -jar app.jar"))
	case c.Bits < -1 || c.Bits == 0 || c.Bits > 30:
		return "", usage(fmt.Errorf("--bits %d: want 1 to 30", c.Bits))
	case c.Offset < -1 || c.Offset > 1<<30:
		return "", usage(fmt.Errorf("--offset %d: want a number of natsid", c.Offset))
	case c.Quarantine < 0 || c.Quarantine > 720*time.Hour:
		return "", usage(fmt.Errorf("--quarantine %v: want 0s to 720h", c.Quarantine))
	case strings.ContainsAny(strings.Join(c.Env, ""), "=,\x00") || slices.Contains(c.Env, ""):
		return "", usage(fmt.Errorf("--env %q: want names of variables", c.Env))
	}
	if path, err = exec.LookPath(c.Program[0]); err != nil {
		err = programEnd{fmt.Errorf(notRun, err), 127}
	}
	return path, err
}

const notRun = "the program cannot be run: %w"

// fit returns the worker numbers that the program can use: those set aside for programs that fit into --bits once
// --offset is subtracted. The default of --offset depends on the layout alone, so that programs subtract the same:
// with different offsets, two programs could be told the same number.
func (c *numberCmd) fit(l snowflake.Layout, programs workerid.Span) (workerid.Span, error) {
	bits, offset := 30, 0
	if c.Bits > 0 {
		_, count := l.Numbers(0)
		bits, offset = c.Bits, count/2
	}
	if c.Offset < 0 {
		c.Offset = offset
	}
	of := workerid.Span{First: c.Offset, Last: c.Offset + 1<<bits - 1}
	fits := workerid.Span{First: max(of.First, programs.First), Last: min(of.Last, programs.Last)}
	if fits.First > fits.Last {
		return fits, usage(fmt.Errorf("no number fits: programs have the numbers %v here, and --bits and --offset "+
			"want %v: give an --offset, the same to all programs whose IDs must differ, or change those of "+
			"programs with `natsid layout --holders`", programs, of))
	}
	return fits, nil
}

func (c *numberCmd) Run(s *session) error {
	s.stderr = loose{s.stderr, make(chan struct{}, 1)}
	path, err := c.check()
	if err != nil {
		return err
	}
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if s.given["layout"] == (app.Given{}) && s.given["epoch"] == (app.Given{}) {
		cfg.Layout = snowflake.Layout{} // no layout was given: take any that the registry has
	}
	h, err := holder.Open(s.ctx, nc, holder.Config{
		Namespace: cfg.Namespace, JSDomain: cfg.JSDomain, JSPrefix: cfg.JSPrefix, Layout: cfg.Layout, Site: cfg.Site,
		Fit: c.fit, Horizon: cfg.Horizon, Rest: c.Quarantine, MaxClockSkew: cfg.MaxClockSkew,
		Log: slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	lease, err := h.Lease(s.ctx)
	if err != nil {
		return err
	}
	return c.run(s, path, lease)
}

// run runs the program, and releases its worker number at once if all its processes are seen to have ended.
func (c *numberCmd) run(s *session, path string, lease *holder.Lease) error {
	cmd := supervise.Command{
		Path: path, Args: c.Program, Env: os.Environ(), Until: lease.Until,
		Say: func(format string, args ...any) { fmt.Fprintf(s.stderr, "natsid: "+format+"\n", args...) },
	}
	for _, name := range append(c.Env, "NATSID_WORKER_NUMBER") {
		cmd.Env = append(cmd.Env, name+"="+strconv.Itoa(lease.Number()-c.Offset))
	}
	cmd.Env = (&exec.Cmd{Env: cmd.Env}).Environ() // drops earlier values of a variable: C, Java and Perl read the first
	end, err := cmd.Run()
	if err != nil {
		return errors.Join(programEnd{fmt.Errorf(notRun, err), 127}, lease.Release())
	}
	if end.Whole {
		_ = lease.Release() // else a process may still make IDs, so the number rests for --quarantine
	}
	if end.Because != nil {
		return programEnd{fmt.Errorf("the program was ended: %w", end.Because), 4}
	}
	return programEnd{nil, end.Code}
}

// A loose writer drops text that is not written within 100 ms. natsid must end the program before its worker number
// expires, so it cannot wait for a reader that hangs.
type loose struct {
	io.Writer
	writing chan struct{} // has room for one value, which the write under way has put in
}

// Write implements [io.Writer].
func (l loose) Write(text []byte) (int, error) {
	late, done, text := time.After(100*time.Millisecond), make(chan struct{}), bytes.Clone(text)
	select {
	case l.writing <- struct{}{}:
		go func() {
			_, _ = l.Writer.Write(text)
			<-l.writing
			close(done)
		}()
	case <-late:
		return len(text), nil
	}
	select {
	case <-done:
	case <-late:
	}
	return len(text), nil
}
