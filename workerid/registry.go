package workerid

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// A Registry holds a record and a heartbeat for each worker number, and the deployment: the settings that its
// workers share. All methods are safe for concurrent use, also by many processes, and return by the time ctx ends.
// After an error that is not of this package, the registry did not answer: a write may have landed, or land later.
type Registry interface {
	// Deployment returns the settings that all workers share, [ErrNoDeployment] if it has none, or [ErrDamaged].
	Deployment(ctx context.Context) (Deployment, error)
	// Found makes d the deployment if there is none, or returns [ErrConflict] if there is one, which can be read.
	Found(ctx context.Context, d Deployment) error

	// Records returns the records of all numbers, possibly a little old.
	Records(ctx context.Context) (map[int]Record, error)
	// Record returns the current record of number w, or [ErrNoRecord].
	Record(ctx context.Context, w int) (Record, error)
	// Write makes r the record of number w if the present record's revision is r.Revision, or 0 where there is
	// none. It returns the new revision; revisions only rise. It returns [ErrConflict] if the present revision is
	// another one, perhaps that of an earlier write of the same caller.
	Write(ctx context.Context, w int, r Record) (revision uint64, err error)

	// Time returns the registry's own time, in Unix ms, of the same clock that dates the heartbeats.
	Time(ctx context.Context) (ms int64, err error)
	// Report puts the heartbeat of number w, which expires some time after the last report.
	Report(ctx context.Context, w int, h Heartbeat) error
	// Heartbeats returns the heartbeats of all numbers, possibly a little old.
	Heartbeats(ctx context.Context) (map[int]Heartbeat, error)
	// Leave removes the heartbeat of number w.
	Leave(ctx context.Context, w int) error

	// Ask asks the worker with number w who it is. It returns [ErrNoWorker] if the subject of that number has no
	// subscriber, and [ErrBystander] if no answer arrives and another process subscribes to the subjects of all numbers
	// without answering. Any other error means that a worker may have the number.
	Ask(ctx context.Context, w int) (Who, error)
}

// Version is the version of stored records and deployments. Entries of another version are refused.
const Version = 1

// A Record is the permanent entry of a worker number: who owns it, and until when. The zero value means none.
type Record struct {
	Instance string `json:"instance"`
	Token    string `json:"token"`    // random; in all writes of one claim, and in no other
	Reported int64  `json:"reported"` // the writer's time, Unix ms
	Until    int64  `json:"until"`    // no ID has a tick that begins at Until or later, Unix ms
	// Deployment is a copy of the registry's deployment when the record was written, without Holders.
	Deployment Deployment `json:"deployment"`
	// Program is the host of the program that has the number; "" for a worker.
	Program  string `json:"program,omitempty"`
	Revision uint64 `json:"-"`
	// Damaged means that the record is unreadable, or of another version; all fields but Revision are zero. Its
	// number is not acquired, since nobody knows when its owner's time ends.
	Damaged bool `json:"-"`
}

// Valid returns nil, or an error that says why this package cannot have written the record.
func (r Record) Valid() error {
	switch {
	case r.Token == "":
		return errors.New("no token")
	case r.Until < 0 || r.Until > maxTime:
		return fmt.Errorf("until is %d, want Unix milliseconds", r.Until)
	}
	return r.Deployment.Valid()
}

// maxTime is a time that no window reaches, Unix ms: sums with it do not overflow.
const maxTime = 1 << 61

// A Heartbeat is an entry that a live worker puts every few seconds, and that expires. A number with a heartbeat is not
// acquired, but uniqueness depends on the record alone.
type Heartbeat struct {
	Instance string `json:"instance"`
	Time     int64  `json:"time"`  // the worker's own, Unix ms; 0 if unreadable
	Since    int64  `json:"since"` // when it acquired the number, Unix ms
	At       int64  `json:"-"`     // the registry's time when it was put, Unix ms
}

// Offset returns the worker's clock minus the registry's at the time of the heartbeat.
func (h Heartbeat) Offset() time.Duration { return time.Duration(h.Time-h.At) * time.Millisecond }

// Who is a worker's answer on the subject of its number.
type Who struct {
	Instance string `json:"instance"`
	Process  string `json:"process"` // random, one per process
}

// A Deployment is the settings that all workers of a registry must share so that their IDs differ.
type Deployment struct {
	ID     string `json:"id"` // random, identifies the registry
	Layout string `json:"layout"`
	Epoch  int64  `json:"epoch"` // Unix ms
	Unit   int64  `json:"unit"`  // of a tick, ms
	// Holders are the numbers for programs. They may change at any time, so records and state files omit them.
	Holders Holders `json:"holders,omitempty"`
}

// Valid returns nil, or an error that says why this package cannot have written the deployment.
func (d Deployment) Valid() error {
	if d.ID == "" || d.Layout == "" || d.Unit < 1 {
		return fmt.Errorf("id %q, layout %q, unit %d: all must be set", d.ID, d.Layout, d.Unit)
	}
	return nil
}

// DeploymentOf returns the deployment of a layout, without an ID.
func DeploymentOf(l snowflake.Layout) Deployment {
	return Deployment{Layout: l.String(), Epoch: l.Epoch, Unit: l.Unit}
}

// SnowflakeLayout returns the layout of the deployment.
func (d Deployment) SnowflakeLayout() (snowflake.Layout, error) {
	l, err := snowflake.ParseLayout(d.Layout)
	if err != nil {
		return l, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	l.Epoch, l.Unit = d.Epoch, d.Unit
	return l, l.Validate()
}

// check returns an error that wraps [ErrDeployment] and shows both deployments if have, the registry's, has another
// layout, epoch or unit than want.
func (want Deployment) check(have Deployment) error {
	if want.ID = have.ID; want == have {
		return nil
	}
	return fmt.Errorf("%w: the registry has layout %s, epoch %d, ticks of %d ms; this worker was started with "+
		"layout %s, epoch %d, ticks of %d ms: start it with the registry's, or in a namespace of its own",
		ErrDeployment, have.Layout, have.Epoch, have.Unit, want.Layout, want.Epoch, want.Unit)
}

// within returns the result of call, whose context ends after limit at the latest.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// newToken returns a random token that never repeats.
func newToken() string { return rand.Text() }
