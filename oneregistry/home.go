package oneregistry

import (
	"context"
	"errors"
	"time"
)

// Facts is a registry as it was read just now.
type Facts struct {
	Segments, Numbers string    // its IDs: see [Notice]
	Made              time.Time // zero if that is not known
	Live              []int     // worker numbers that have a heartbeat; nil unless they were counted
	Verdict           Verdict
}

// A Verdict is what a registry remembers of another one. It is changed by compare-and-set.
type Verdict struct {
	Yields   string    `json:"yields,omitempty"`  // the registry that stays instead; "" if this one serves
	Merged   bool      `json:"merged,omitempty"`  // the marks of this one are merged into that
	Ordered  bool      `json:"ordered,omitempty"` // by an operator, not by the rule
	By       string    `json:"by,omitempty"`      // the worker that wrote it
	At       time.Time `json:"at,omitzero"`
	Revision uint64    `json:"-"` // 0 if nothing was ever written
}

// ErrConflict is returned when a verdict was changed by another worker meanwhile.
var ErrConflict = errors.New("oneregistry: another worker has decided meanwhile")

// A Mark says how far a tag's IDs may have been loaded.
type Mark struct {
	Tag         string `json:"tag"`
	High        int64  `json:"high,string"` // no ID at or above it was loaded
	Step        int64  `json:"step,string"`
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
}

// A Span is the IDs of a tag that may have been given twice: [First, End).
type Span struct {
	Tag   string `json:"tag"`
	First int64  `json:"first,string"`
	End   int64  `json:"end,string"`
}

// A Home is the registry on which this worker rests. All methods are safe for concurrent use and return by the time
// ctx ends.
type Home interface {
	// Read reads the registry, from its leaders, with its live workers if they are to be counted. It makes nothing.
	Read(ctx context.Context, count bool) (Facts, error)
	// Decide replaces the verdict of revision v.Revision by v. It returns [ErrConflict] if another was written.
	Decide(ctx context.Context, v Verdict) error
	// Marks returns the marks of at most limit tags whose names are above after, in order. Each is no lower than what
	// this process ever loaded.
	Marks(ctx context.Context, after string, limit int) ([]Mark, error)
	// Lift raises the tags to the marks or above, and their least too, so that no worker of this registry issues an ID
	// below, once it knows. It returns what both registries may have issued, and why tags could not be raised.
	Lift(ctx context.Context, marks []Mark) (spans []Span, failed map[string]string)
	// Renew makes this worker know the present least of each tag: no ID below is issued from then on.
	Renew(ctx context.Context) error
}

// A Bus carries messages between the workers of a namespace. All methods are safe for concurrent use and return by the
// time ctx ends.
type Bus interface {
	// Announce sends a notice to all workers.
	Announce(notice []byte) error
	// Ask asks one worker of each registry who it is, and calls answer with each reply until that returns false, ctx
	// ends, or it is certain that none will come.
	Ask(ctx context.Context, question []byte, answer func(reply []byte) bool) error
	// Call asks one worker of a registry. It returns [ErrNoWorker] if the registry has none that can be reached.
	Call(ctx context.Context, registry string, call []byte) (reply []byte, err error)
	// Join makes this worker one that answers for a registry, and for no other.
	Join(registry string) error
}

// ErrNoWorker is returned by [Bus.Call] if no worker of the registry can be reached.
var ErrNoWorker = errors.New("oneregistry: no worker of that registry can be reached")
