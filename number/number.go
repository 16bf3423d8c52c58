// Package number draws snowflakes in the caller's own process, without a request:
//
//	ids, err := number.Open(ctx, nc, number.Config{Dir: "/var/lib/shop"}) // nc is a *nats.Conn
//	…
//	defer ids.Close()
//	id, err := ids.Next(ctx)
//
// [Open] acquires a worker number that no worker and no other program has, for a window of time, and renews the
// window until Close. It opens a connection of its own, with the options of the given one. The IDs of all workers
// and programs of a registry are unique: see docs/uniqueness.md. A paused program issues none after its window.
//
// While NATS or JetStream does not answer, IDs are issued until the window ends, for up to five minutes. After
// that, and while the machine's clock is wrong, calls fail; Config.OnChange is called first. Retry a failed call,
// or request IDs from workers with package client: a [Holder] is a client.Source, too.
//
// `natsid permissions holder` prints the rights that the user of NATS needs. docs/holders.md explains more.
package number

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/holder"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Config is the settings of a [Holder]. The zero value means the defaults.
type Config struct {
	// Namespace is the namespace of the workers; "" means [subjects.DefaultNamespace].
	Namespace subjects.Namespace
	// JSDomain or JSPrefix is JetStream's domain or API prefix, as in the workers' flags --js-domain and --js-prefix.
	JSDomain, JSPrefix string
	// Layout is the layout that the program expects; the zero value accepts whatever layout the workers have.
	Layout snowflake.Layout
	// Site is the site of this program, where the layout has site bits.
	Site int
	// Dir is a directory for the state of this one process. After a crash the next process resumes the number from
	// it, also without JetStream. "" keeps no state: after a crash the number stays blocked for up to five minutes.
	Dir string
	// Name is the name in `natsid workers`; "" means the host's name and a random part.
	Name string
	// MaxClockSkew is how far the clocks of two machines may differ, as the workers' --max-clock-skew; 0 means 1 s.
	MaxClockSkew time.Duration
	// OnChange is called with nil when IDs can be issued and the window is renewed, for the first time within Open.
	// It is called with the reason when no ID can be issued, or none after the present window. nil means no call.
	// It must not block, nor call Close.
	OnChange func(error)
	// Log receives messages for an operator; nil discards them.
	Log *slog.Logger
}

// A Holder holds a worker number and issues its snowflakes. It is safe for concurrent use.
type Holder struct{ h *holder.Holder }

// Open acquires a number. It returns once an ID can be issued, after about a second. If none can be issued by the end
// of ctx, or within 15 s where ctx has no deadline, it gives the number back, which takes some seconds if NATS does not
// answer, and returns the reason. A worker must have started in the namespace before.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Holder, error) {
	h, err := holder.Open(ctx, nc, holder.Config{
		Namespace: cfg.Namespace, JSDomain: cfg.JSDomain, JSPrefix: cfg.JSPrefix, Layout: cfg.Layout, Site: cfg.Site,
		Dir: cfg.Dir, Name: cfg.Name, MaxClockSkew: cfg.MaxClockSkew, OnChange: cfg.OnChange, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("number: %w", err)
	}
	return &Holder{h}, nil
}

// Next returns a snowflake from memory, without allocation. Above the rate of the layout (Leaf's: 4.096 million IDs a
// second) it waits for the clock, for a few milliseconds, and not longer than ctx. Errors are those of
// [snowflake.Generator.NextAt] and [snowflake.ErrNoNumber], with the reason.
func (h *Holder) Next(ctx context.Context) (subjects.ID, error) { return h.h.Next(ctx) }

// NextN returns n snowflakes, 1 to client.MaxIDs. It waits until the clock has advanced by the ticks for n IDs.
func (h *Holder) NextN(ctx context.Context, n int) (subjects.Runs, error) { return h.h.NextN(ctx, n) }

// Number returns the present worker number, and reports whether there is one. A lost number is replaced by another.
func (h *Holder) Number() (number int, held bool) { return h.h.Number() }

// Until returns the end of the present window: no ID has a later time.
func (h *Holder) Until() time.Time { return h.h.Until() }

// Layout returns the layout of the IDs, which [snowflake.Layout.Decode] reads.
func (h *Holder) Layout() snowflake.Layout { return h.h.Layout() }

// Close ends issuing for good and gives the number back. The error says why the number could not be given back: it
// then stays blocked until its window ends. The given connection stays open.
func (h *Holder) Close() error { return h.h.Close() }
