package segment

import (
	"cmp"
	"log/slog"
	"time"
)

// Defaults of MaxStep and StepTime in [Config]: Leaf's values.
const (
	DefaultMaxStep  = 1_000_000
	DefaultStepTime = 15 * time.Minute
)

// Config configures an [Allocator]. Store and Deadline must be set.
type Config struct {
	// Store keeps the tags, and for each one the mark: the first ID that no worker has loaded.
	Store Store
	// Deadline bounds how long a parked request waits.
	Deadline time.Duration
	// LoadTimeout bounds one load; two thirds of Deadline if 0. Keep it below Deadline, so that a load that hangs is
	// retried before the requests behind it expire.
	LoadTimeout time.Duration
	// Enough, if set, returns the time that a load may take: least, or more where the store is far away. That time may
	// exceed Deadline: then the range serves later requests.
	Enough func(least time.Duration) time.Duration
	// MaxStep bounds the step while ranges last less than StepTime; 1,000,000 if 0. A tag configured with more keeps
	// its own step.
	MaxStep int64
	// StepTime is how long a range should last at least; 15 min if 0. A range that lasted less doubles the step, one
	// that lasted more than twice as long halves it.
	StepTime time.Duration
	// MaxWaiting bounds the parked requests of one tag; 4096 if 0.
	MaxWaiting int
	// AutoStep is the step of tags created on first use; 0 creates none.
	AutoStep int64
	// AutoCreate, if set, reports whether a tag may be created on first use; nil allows all.
	AutoCreate func(tag string) bool
	// Ration, if set, is called before a tag is created on first use. It counts the tag and returns nil, or it returns
	// why no tag may be created now. The waiting requests get that error.
	Ration func() error
	// OnCreate, if set, is called after each tag created on first use. It must not block.
	OnCreate func(tag string)
	// Poll is the interval at which [Allocator.Follow] reads all tags; 1 min if 0.
	Poll time.Duration
	// When more than MaxIdle tags are in memory (10,000 if 0; below 0 means any number), a poll removes tags that
	// were not requested for Idle (1 h if 0). Their loaded IDs become holes.
	Idle    time.Duration
	MaxIdle int
	// Preload makes Follow load one range of every tag that was changed or loaded within this time; 0 loads none.
	Preload time.Duration
	// Servable, if set, reports whether a tag can be requested at all; others are not preloaded.
	Servable func(tag string) bool
	// OnLoad, if set, is called after every load with its duration and outcome.
	OnLoad func(tag string, took time.Duration, err error)
	// Granted, if set, is called with each loaded range, before any of its IDs is issued. It must not block.
	// Uniqueness does not depend on it.
	Granted func(tag string, l Loaded)
	// Clock dates daily, monthly and yearly tags; nil is [SystemClock].
	Clock Clock
	// Log receives failed loads and polls; nil discards.
	Log *slog.Logger
}

// withDefaults returns the configuration with a value for every optional field.
func (c Config) withDefaults() Config {
	c.LoadTimeout = cmp.Or(c.LoadTimeout, c.Deadline*2/3)
	c.MaxStep = cmp.Or(c.MaxStep, DefaultMaxStep)
	c.StepTime = cmp.Or(c.StepTime, DefaultStepTime)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 4096)
	c.Poll = cmp.Or(c.Poll, time.Minute)
	c.Idle = cmp.Or(c.Idle, time.Hour)
	c.MaxIdle = cmp.Or(c.MaxIdle, 10_000)
	all := func(string) bool { return true }
	if c.AutoCreate == nil {
		c.AutoCreate = all
	}
	if c.Ration == nil {
		c.Ration = func() error { return nil }
	}
	if c.Servable == nil {
		c.Servable = all
	}
	if c.Enough == nil {
		c.Enough = func(least time.Duration) time.Duration { return least }
	}
	if c.OnCreate == nil {
		c.OnCreate = func(string) {}
	}
	if c.OnLoad == nil {
		c.OnLoad = func(string, time.Duration, error) {}
	}
	if c.Granted == nil {
		c.Granted = func(string, Loaded) {}
	}
	if c.Clock == nil {
		c.Clock = SystemClock
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}
