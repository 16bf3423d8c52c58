//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
)

// A scene is one fault on a cluster of its own: its processes, its callers and
// its story.
//
// It is a [testing.TB] as far as internal/testkit/mysqltest needs one: what fails ends
// the scene. Methods that fail it must be called on the goroutine of its play.
type scene struct {
	testing.TB // nil: only the methods below exist

	name string
	dir  string // all it has on disk, and its logs
	opt  options
	bins binaries
	cast cast
	ctx  context.Context
	born time.Time

	servers []*server
	workers []*worker
	proxies []*natsproxy.Proxy // of the first worker, one a server
	db      *mysqltest.Server
	link    *mysqltest.Link // between the workers and db
	load    *load
	rng     *rand.Rand // of a random sequence; nil otherwise

	from, till time.Duration // of the fault, since the start of the load
	recovered  time.Duration // since till; set when all is well again

	mu       sync.Mutex
	story    []string
	trouble  []string   // why it failed
	mourned  []*process // those that ended by themselves
	skipped  string     // why it could not be played here
	cleanups []func()
}

// say adds a line to the story.
func (s *scene) say(format string, args ...any) {
	at := time.Since(s.born)
	if s.load != nil && !s.load.start.IsZero() {
		at = s.load.now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, fmt.Sprintf("%8.3f  %s", at.Seconds(), fmt.Sprintf(format, args...)))
}

// wrong notes what must not be; the play goes on.
func (s *scene) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.say("WRONG: %s", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = append(s.trouble, text)
}

// expected notes what must not be if the fault is the only one: in a random
// sequence another may be the cause.
func (s *scene) expected(format string, args ...any) {
	if s.rng == nil {
		s.wrong(format, args...)
	} else {
		s.say(format, args...)
	}
}

// must ends the scene if there is an error.
func (s *scene) must(err error) {
	if err != nil {
		s.Fatal(err)
	}
}

// What internal/testkit/mysqltest calls.

func (s *scene) Helper()                  {}
func (s *scene) Name() string             { return s.name }
func (s *scene) Context() context.Context { return s.ctx }
func (s *scene) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }
func (s *scene) Fatal(args ...any)        { s.Fatalf("%s", fmt.Sprint(args...)) }

func (s *scene) Errorf(format string, args ...any) { s.wrong(format, args...) }

func (s *scene) Fatalf(format string, args ...any) {
	s.wrong(format, args...)
	runtime.Goexit()
}

func (s *scene) Skipf(format string, args ...any) {
	s.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (s *scene) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "tmp")
	s.must(err)
	return dir
}

// play runs f to its end, or to the first thing that fails, and then what was
// deferred with Cleanup.
func (s *scene) play(f func()) {
	for _, part := range []func(){f, s.clean} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			part()
		}()
		<-done
	}
}

func (s *scene) clean() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// until waits for a condition.
func (s *scene) until(within time.Duration, what string, ok func() bool) {
	s.must(s.await(within, what, ok))
}

func (s *scene) await(within time.Duration, what string, ok func() bool) error {
	for late := time.After(within); !ok(); {
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-late:
			return fmt.Errorf("after %v still waiting: %s", within, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// pass lets time pass, as it passes for callers.
func (s *scene) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		s.Fatal("stopped")
	}
}

// path returns the path of a file of this scene's.
func (s *scene) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// logs returns the last warnings and errors that the workers wrote, for who
// must find out why the scene failed.
func (s *scene) logs() string {
	names, _ := filepath.Glob(s.path("w*.log"))
	var b strings.Builder
	for _, name := range names {
		text, _ := os.ReadFile(name)
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR") && !strings.Contains(line, "panic")
		})
		const most = 15
		if len(lines) > 0 {
			fmt.Fprintf(&b, "-- %s\n%s\n", filepath.Base(name), strings.Join(lines[max(0, len(lines)-most):], "\n"))
		}
	}
	return b.String()
}
