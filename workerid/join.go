package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// isRefused reports whether err means that the registry answers, but this worker must not issue under it: then the
// window of the state file is not resumed either.
func isRefused(err error) bool {
	return errors.Is(err, ErrDeployment) || errors.Is(err, ErrNoDeployment) || errors.Is(err, ErrDamaged)
}

// A founder joins the registry. Only the goroutine of Keeper.Run uses it.
type founder struct {
	registry Registry
	layout   snowflake.Layout
	rand     *rand.Rand
	// mayFound is called before and after this worker creates the deployment.
	mayFound   func(ctx context.Context) error
	deployment Deployment // the deployment that this process joined; zero before
	founding   bool       // mayFound is to be called once more before this worker joins
}

// join returns the registry's deployment, which this worker creates if there is none and it may. The error is
// ErrDeployment if this worker has another.
//
// Two layouts in one registry give equal IDs, also at times far apart. So the deployment is read before a number is
// acquired, after that, and at heartbeats; a generator is closed when the deployment differs. A deployment is created
// in three cases only:
//
//   - This process joined a deployment that is gone now: that one is put back.
//   - The records name it: that one is put back.
//   - The registry has no records: no worker ever had a number in it.
//
// A registry that lost everything may still have live workers. mayFound asks them, before the deployment is created
// and after. A worker that acquires a number in between reads the deployment after its own write. So it sees this
// deployment, or mayFound finds that worker.
func (f *founder) join(ctx context.Context) (Deployment, error) {
	began := time.Now()
	have, err := f.read(ctx)
	if errors.Is(err, ErrNoDeployment) {
		have, err = f.foundLater(ctx, time.Since(began))
	}
	if err != nil {
		return Deployment{}, err
	}
	if err := DeploymentOf(f.layout).check(have); err != nil {
		return Deployment{}, err
	}
	if f.founding {
		if err := f.askOthers(ctx); err != nil {
			return Deployment{}, err
		}
		f.founding = false
	}
	f.deployment = have
	return have, nil
}

func (f *founder) read(ctx context.Context) (Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f.registry.Deployment(ctx)
}

const (
	// busyAfter is how long the registry takes to answer if it is busy or far away.
	busyAfter = 30 * time.Millisecond
	// maxPatience is the longest wait for another worker to make the deployment.
	maxPatience = 3 * time.Second
)

// foundLater is found for a registry that took so long to report that it has no deployment. A fleet may be starting
// at this moment: all its workers would list all records and heartbeats to create the deployment, and only one
// creates it. So foundLater waits for a random time of a few answers, and reads again.
func (f *founder) foundLater(ctx context.Context, took time.Duration) (Deployment, error) {
	if took > busyAfter {
		select {
		case <-time.After(time.Duration(f.rand.Int64N(int64(min(4*took, maxPatience))))):
		case <-ctx.Done():
			return Deployment{}, ctx.Err()
		}
		if have, err := f.read(ctx); !errors.Is(err, ErrNoDeployment) {
			return have, err
		}
	}
	return f.found(ctx)
}

// found creates the deployment, and returns the one that the registry then has.
func (f *founder) found(ctx context.Context) (Deployment, error) {
	d := f.deployment
	if d.ID == "" {
		records, err := f.registry.Records(ctx)
		if err != nil {
			return Deployment{}, err
		}
		if have, err := f.read(ctx); !errors.Is(err, ErrNoDeployment) {
			return have, err // another worker has created it since
		}
		if d, err = f.first(ctx, records); err != nil {
			return Deployment{}, err
		}
	}
	return put(ctx, f.registry, d)
}

// put makes d the deployment of a registry that has none, and returns the one that the registry then has.
func put(ctx context.Context, r Registry, d Deployment) (Deployment, error) {
	err := r.Found(ctx, d)
	if !errors.Is(err, ErrConflict) {
		return d, err
	}
	have, err := r.Deployment(ctx)
	if errors.Is(err, ErrNoDeployment) { // JetStream is losing its state
		err = errors.New("workerid: a deployment was made and lost again; trying again")
	}
	return have, err
}

// first returns the deployment that this worker may create in a registry with these records. This process never
// joined the registry.
func (f *founder) first(ctx context.Context, records map[int]Record) (Deployment, error) {
	if len(records) == 0 {
		if err := f.askOthers(ctx); err != nil {
			return Deployment{}, err
		}
		f.founding = true
		return f.fresh(ctx)
	}
	d := deploymentIn(records)
	if d.ID == "" {
		return d, fmt.Errorf("%w, but records of %d worker numbers, which are damaged, so that the layout of their "+
			"IDs is unknown; another layout would repeat those; put back the key deployment with the layout, epoch "+
			"and unit of all IDs so far", ErrNoDeployment, len(records))
	}
	return d, DeploymentOf(f.layout).check(d)
}

// settling is how long the windows of a new deployment wait for workers under a lost deployment whom asking did not
// find: at each heartbeat that reaches the registry they find their record gone, and close their generators. It is
// more than two heartbeats.
const settling = 10 * time.Second

// fresh returns a new deployment. If there are heartbeats without a deployment, their workers may still issue under
// another layout.
func (f *founder) fresh(ctx context.Context) (Deployment, error) {
	d := DeploymentOf(f.layout)
	d.ID = newToken()
	beats, err := f.registry.Heartbeats(ctx)
	if err != nil || len(beats) == 0 {
		return d, err
	}
	now, err := f.registry.Time(ctx)
	d.From = now + settling.Milliseconds()
	return d, err
}

// deploymentIn returns the deployment that the newest record names; zero if all are
// damaged.
func deploymentIn(records map[int]Record) (d Deployment) {
	newest := uint64(0)
	for _, r := range records {
		if !r.Damaged && r.Revision > newest {
			d, newest = r.Deployment, r.Revision
		}
	}
	return d
}

// checkRecords returns ErrDeployment if a record has another layout than have: the deployment was replaced by hand,
// or created where the records were lost.
func checkRecords(have Deployment, records map[int]Record) error {
	for w, r := range records {
		if !r.Damaged && have.check(r.Deployment) != nil { //mutant:foreign-record
			return fmt.Errorf("%w: the record of number %d is of layout %s, epoch %d, and IDs of this worker may "+
				"equal those; start another layout in a namespace of its own; if the registry was wiped, stop all "+
				"workers and delete its buckets, as the operations guide says",
				ErrDeployment, w, r.Deployment.Layout, r.Deployment.Epoch)
		}
	}
	return nil
}

// warnOfDamage raises an alarm if records are damaged.
func (h *chooser) warnOfDamage(records map[int]Record) {
	for w, r := range records {
		if r.Damaged {
			h.alarms.set(RegistryConflict, fmt.Sprintf("the record of number %d is damaged or of another version: "+
				"its window is unknown, so it is left alone; start that version, or delete the key %d once no worker "+
				"can have the number", w, w))
			return
		}
	}
	h.alarms.clear(RegistryConflict)
}

// askOthers asks the live workers whether this one may create the deployment.
func (f *founder) askOthers(ctx context.Context) error {
	if err := f.mayFound(ctx); err != nil {
		return fmt.Errorf("%w of this layout, and none is made: %w", ErrNoDeployment, err)
	}
	return nil
}

// sameDeployment returns nil if the registry still has the claim's deployment, and puts it back if it has none. The
// error is [ErrDeployment] if the deployment has another layout, and errLost if it is of another registry.
func (c *claim) sameDeployment(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	have, err := c.registry.Deployment(ctx)
	if errors.Is(err, ErrNoDeployment) {
		log.Error("the registry has lost its deployment, which fixes the layout of all IDs: it is put back; "+
			"find out who deleted it, or whether JetStream was wiped", "registry", c.deployment.ID)
		have, err = put(ctx, c.registry, c.deployment)
	}
	if err != nil {
		return err
	}
	if err := DeploymentOf(c.layout).check(have); err != nil {
		return err
	}
	if have.ID != c.deployment.ID {
		return fmt.Errorf("%w: the registry was made again", errLost)
	}
	return nil
}
