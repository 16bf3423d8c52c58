// Package app is the composition root: the one place that knows every package
// and puts the whole program together. The command line and the end-to-end
// tests start the same one.
package app

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// Config is everything that can be set. Begin with [Default].
type Config struct {
	// NATS is the URLs of the NATS to join, separated by commas; "" runs a
	// nats-server inside the process, on Listen.
	NATS string
	// NATSCreds is a file of user credentials for it; "" for none.
	NATSCreds string
	// Listen is the embedded server's address, host:port; port 0 takes a free one.
	Listen string
	// Data is the directory of the embedded store and the state file, locked
	// while in use; "" keeps no local state, and needs NATS.
	Data string
	// MySQL is the DSN of a database with Leaf's table leaf_alloc,
	// user:password@tcp(host:port)/database; "" keeps segments in JetStream KV.
	MySQL string
	// Guard keeps a second memory of what was loaded from MySQL in JetStream
	// KV, so that a database that lost commits makes no repeats.
	Guard bool
	// HTTP is the address of health, readiness and metrics; "" for none.
	HTTP string
	// Name names this worker to people; "" takes the one kept in Data, or makes one.
	Name string
	// Replicas is that of the buckets to make, 1..5; 0 means 3 if the server
	// belongs to a cluster, else 1.
	Replicas int
	// Namespace prefixes subjects, services and buckets.
	Namespace subjects.Namespace
	// AutoCreateTags makes tags on first use, with steps of AutoStep: those that
	// AutoCreatePattern matches, in the manner of [path.Match]; "" for all.
	AutoCreateTags    bool
	AutoCreatePattern string
	AutoStep          int64
	// TagPoll is how often the tags are compared with the store, 1 s..24 h.
	TagPoll time.Duration
	// Preload is how long ago at most a tag was loaded or changed last that a
	// range is loaded of at the start, 0..30 days; 0 for none.
	Preload time.Duration
	// MaxStep is the most that a tag's step grows to while its ranges last less
	// than StepTime, 1..segment.MaxStep. A tag's own step may be more.
	MaxStep int64
	// StepTime is how long a range should last at least, 1 s..24 h. One that
	// lasts twice as long halves the step.
	StepTime time.Duration
	// Layout is that of the snowflakes.
	Layout snowflake.Layout
	// Site is which of the layout's sites this worker belongs to, 0 up to the
	// layout's Sites - 1. Each site numbers its own machines.
	Site int
	// LeaseTTL is how long a worker counts as alive after its last heartbeat,
	// at least 20 s: an election after a hard kill of a server takes 4 to 7 s.
	LeaseTTL time.Duration
	// Horizon is how long snowflakes are issued without the registry, at least 1 s.
	Horizon time.Duration
	// MaxAhead is how far a snowflake's time may run ahead of the clock, 0..1 s;
	// one tick at least.
	MaxAhead time.Duration
	// MaxClockSkew is how far the clocks of two workers may differ, 1 ms..1 min.
	MaxClockSkew time.Duration
	// ReclaimOnStep takes another worker number when the clock is right but behind
	// what was issued; otherwise the worker waits until it has caught up.
	ReclaimOnStep bool
	// Now reads the wall clock of snowflakes and worker numbers; nil is [time.Now].
	Now func() time.Time
	// MaxBatch is the most IDs one request may ask for, 1..1,000,000.
	MaxBatch int
	// Deadline is by when each request is answered, 100 ms..1 min.
	Deadline time.Duration
	// Version is what this program calls itself.
	Version string
	// Log receives everything; nil discards.
	Log *slog.Logger
	// Ready, if set, is called once, when all modes can issue for the first time.
	Ready func(Where)
}

// Where says where a program that is ready can be found.
type Where struct {
	URL      string // of NATS, without password
	Embedded bool
	HTTP     string // address of the monitor; "" if off
	Instance string
	Number   int // the worker number
}

// DefaultStep is the step of tags made on first use: Leaf's example.
const DefaultStep = 1000

// Default returns the settings of a service on one machine.
func Default() Config {
	return Config{
		Listen:       "127.0.0.1:4222",
		Data:         "natsid-data",
		HTTP:         "127.0.0.1:8080",
		Guard:        true,
		Namespace:    subjects.DefaultNamespace,
		AutoStep:     DefaultStep,
		MaxStep:      segment.DefaultMaxStep,
		StepTime:     segment.DefaultStepTime,
		TagPoll:      time.Minute,
		Preload:      24 * time.Hour,
		Layout:       snowflake.Leaf,
		LeaseTTL:     30 * time.Second,
		Horizon:      5 * time.Minute,
		MaxAhead:     snowflake.DefaultMaxAhead,
		MaxClockSkew: time.Second,
		MaxBatch:     100_000,
		Deadline:     1500 * time.Millisecond,
		Version:      "0.0.0-dev",
	}
}

// Validate returns an error that names every fault, or nil.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	between := func(name string, d, low, high time.Duration) {
		check(low <= d && d <= high, "%s %v, want %v to %v", name, d, low, high)
	}
	if err := c.Namespace.Check(); err != nil {
		faults = append(faults, err)
	}
	if err := c.Layout.Validate(); err != nil {
		faults = append(faults, err)
	} else {
		check(0 <= c.Site && c.Site < c.Layout.Sites(), "site %d, want 0 to %d: layout %s has %d site bits; choose a wider one with --layout",
			c.Site, c.Layout.Sites()-1, c.Layout, c.Layout.Site)
	}
	check(c.NATS != "" || c.Data != "", "the embedded server needs a directory: set --data, or join a NATS with --nats")
	if c.NATS == "" {
		if _, _, err := natsembed.ParseListen(c.Listen); err != nil {
			faults = append(faults, err)
		}
	}
	check(0 <= c.Replicas && c.Replicas <= 5, "%d replicas, want 1 to 5, or 0 to choose by the server", c.Replicas)
	check(1 <= c.AutoStep && c.AutoStep <= segment.MaxStep, "step %d of tags made on first use, want 1 to %d", c.AutoStep, int64(segment.MaxStep))
	check(1 <= c.MaxStep && c.MaxStep <= segment.MaxStep, "max-step %d, want 1 to %d", c.MaxStep, int64(segment.MaxStep))
	if _, err := path.Match(c.AutoCreatePattern, ""); err != nil {
		faults = append(faults, fmt.Errorf("auto-create-tags %q is no pattern: * stands for any characters but /, ? for one, [a-z] for one of these", c.AutoCreatePattern))
	}
	between("tag-poll", c.TagPoll, time.Second, 24*time.Hour)
	between("preload", c.Preload, 0, 30*24*time.Hour)
	between("step-time", c.StepTime, time.Second, 24*time.Hour)
	check(1 <= c.MaxBatch && c.MaxBatch <= 1_000_000, "batches of up to %d, want 1 to 1000000", c.MaxBatch)
	between("lease TTL", c.LeaseTTL, 20*time.Second, 24*time.Hour)
	between("horizon", c.Horizon, time.Second, 30*24*time.Hour)
	between("max-ahead", c.MaxAhead, 0, time.Second)
	between("max-clock-skew", c.MaxClockSkew, time.Millisecond, time.Minute)
	between("deadline", c.Deadline, 100*time.Millisecond, time.Minute)
	return errors.Join(faults...)
}
