package oneregistry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// A Notice is what a worker says about its registry. It crosses the wire as JSON.
type Notice struct {
	// ID names the registry to people: Segments where it is known, else Numbers.
	ID string `json:"registry"`
	// Segments and Numbers are the random IDs of the marks' bucket and of the worker numbers; "" if there is none, or
	// if it is not known yet.
	Segments string `json:"segments,omitempty"`
	Numbers  string `json:"numbers,omitempty"`
	// Made is when the registry was made; zero if that is not known.
	Made    time.Time `json:"made,omitzero"`
	Workers int       `json:"workers"` // how many have a heartbeat in it
	// Pinned says that an operator named this registry as the one to rest on.
	Pinned bool `json:"pinned,omitempty"`
	// Yields is the registry that this one yielded to: then it serves nothing.
	Yields string `json:"yields,omitempty"`
	// Merged says that the marks of a registry that yielded have been merged.
	Merged bool `json:"merged,omitempty"`

	Layout string `json:"layout"`
	Epoch  int64  `json:"epoch"` // Unix ms
	Unit   int64  `json:"unit"`  // of a tick, ms

	Instance string `json:"instance"`
	Process  string `json:"process"` // random, one per process
	// Fresh says that all of this was read for this notice, and not remembered.
	Fresh bool `json:"fresh,omitempty"`
	// Settled says that the worker has listened for long enough to have heard every registry.
	Settled bool `json:"settled,omitempty"`
}

// maxNotice bounds a notice on the wire, in bytes, and maxName each name in it.
const (
	maxNotice = 4096
	maxName   = 128
)

// parseNotice reads a notice that anyone may have sent.
func parseNotice(data []byte) (n Notice, err error) {
	if len(data) > maxNotice {
		return Notice{}, fmt.Errorf("oneregistry: a notice of %d bytes, want at most %d", len(data), maxNotice)
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Notice{}, fmt.Errorf("oneregistry: a notice that cannot be read: %w", err)
	}
	return n, n.check()
}

func (n Notice) check() error {
	for _, id := range []string{n.Segments, n.Numbers, n.Yields} {
		if id != "" && !IsID(id) {
			return fmt.Errorf("oneregistry: %.40q is not the ID of a registry", id)
		}
	}
	if !IsID(n.ID) || n.ID != cmp.Or(n.Segments, n.Numbers) {
		return fmt.Errorf("oneregistry: %.40q is not the ID of the registry of the notice", n.ID)
	}
	if n.Process == "" || len(n.Process) > maxName || len(n.Instance) > maxName || len(n.Layout) > maxName {
		return fmt.Errorf("oneregistry: a notice without process, or with a name of more than %d bytes", maxName)
	}
	if n.Workers < 0 {
		return fmt.Errorf("oneregistry: a notice of %d workers", n.Workers)
	}
	return nil
}

// IsID reports whether id can be a registry's: a token of a subject.
func IsID(id string) bool {
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxName
}

// Differs reports whether both notices are of two registries, as far as both know them.
func (n Notice) Differs(o Notice) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(n.Segments, o.Segments) || differ(n.Numbers, o.Numbers)
}

// Is reports whether id names the registry of the notice.
func (n Notice) Is(id string) bool {
	return id != "" && (id == n.ID || id == n.Segments || id == n.Numbers)
}

// SameIDs reports whether the workers of both notices make snowflakes of the same fields.
func (n Notice) SameIDs(o Notice) bool {
	return n.Layout == o.Layout && n.Epoch == o.Epoch && n.Unit == o.Unit
}

// Outranks reports whether the registry of n stays, and that of o yields: the one that is pinned, else the one with
// more workers, else the older one. Exactly one of two different registries outranks the other, whoever asks.
func (n Notice) Outranks(o Notice) bool {
	if n.Pinned != o.Pinned {
		return n.Pinned
	}
	if n.Workers != o.Workers {
		return n.Workers > o.Workers
	}
	if !n.Made.Equal(o.Made) {
		return !n.Made.IsZero() && (o.Made.IsZero() || n.Made.Before(o.Made))
	}
	return n.ID < o.ID
}

// serves reports whether workers of the registry issue IDs.
func (n Notice) serves() bool { return n.Yields == "" }

// String names the registry as operators know it.
func (n Notice) String() string {
	made := ""
	if !n.Made.IsZero() {
		made = ", made " + n.Made.UTC().Format(time.DateTime)
	}
	return fmt.Sprintf("%s (workers %d%s)", n.ID, n.Workers, made)
}
