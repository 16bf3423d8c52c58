package workerid

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// isRefused reports whether err means that the registry answers, and this worker must not issue. Then it must not
// continue to issue by its state file either, as it may while the registry does not answer.
func isRefused(err error) bool {
	return errors.Is(err, ErrDeployment) || errors.Is(err, ErrNoDeployment) || errors.Is(err, ErrDamaged)
}

// join returns the registry's deployment (the settings that all its workers share) and, apart from it, the numbers
// for programs, since these may change. It creates a missing deployment if this worker may. The error is
// ErrDeployment if this worker has another layout.
//
// Two layouts in one registry give equal IDs, also at times far apart. So the deployment is read before a number is
// acquired and after that, and no worker joins a registry with a record of another layout. A missing deployment is
// created again as the newest record names it. Only a registry without records gets a new one.
//
// A registry that lost everything may still have live workers. MayFound asks them, before the deployment is created
// and after. A worker that acquires a number between the two questions reads the deployment after its own write. So
// that worker sees this deployment, or the second question finds that worker.
func (k *Keeper) join(ctx context.Context) (d Deployment, holders Holders, err error) {
	have, err := within(ctx, callTimeout, k.cfg.Registry.Deployment)
	if errors.Is(err, ErrNoDeployment) && k.cfg.Program == "" { //mutant:guest
		have, err = k.foundDeployment(ctx)
	}
	if err != nil {
		return Deployment{}, "", err
	}
	d, holders = have, have.Holders
	d.Holders = ""
	if err := DeploymentOf(k.cfg.Layout).check(d); err != nil {
		return Deployment{}, "", err
	}
	if k.founding {
		if err := k.askOthers(ctx); err != nil {
			return Deployment{}, "", err
		}
		k.founding = false
	}
	return d, holders, nil
}

// foundDeployment creates the deployment, the settings that all workers share, and returns what the registry then has.
func (k *Keeper) foundDeployment(ctx context.Context) (Deployment, error) {
	d, err := k.chooseDeployment(ctx)
	if err != nil {
		return Deployment{}, err
	}
	err = k.cfg.Registry.Found(ctx, d)
	if errors.Is(err, ErrConflict) { // another worker has just created it
		return within(ctx, callTimeout, k.cfg.Registry.Deployment)
	}
	return d, err
}

func (k *Keeper) chooseDeployment(ctx context.Context) (Deployment, error) {
	records, err := k.cfg.Registry.Records(ctx)
	if err != nil {
		return Deployment{}, err
	}
	d := DeploymentOf(k.cfg.Layout)
	switch {
	case len(records) == 0 && k.cfg.Now() < k.cfg.Layout.Epoch: // the epoch would be recorded for good
		return d, fmt.Errorf("%w, and none is made: the clock shows %s, before the epoch: correct one",
			ErrNoDeployment, time.UnixMilli(k.cfg.Now()).UTC().Format(time.RFC3339))
	case len(records) == 0:
		d.ID, k.founding = newToken(), true
		return d, k.askOthers(ctx)
	}
	if d = deploymentIn(records); d.ID == "" {
		return d, fmt.Errorf("%w, but records of %d worker numbers, which are damaged, so that the layout of their "+
			"IDs is unknown; another layout would repeat those; put back the key deployment with the layout, epoch "+
			"and unit of all IDs so far", ErrNoDeployment, len(records))
	}
	return d, DeploymentOf(k.cfg.Layout).check(d)
}

func (k *Keeper) askOthers(ctx context.Context) error {
	if err := k.cfg.MayFound(ctx); err != nil {
		return fmt.Errorf("%w of this layout, and none is made: %w", ErrNoDeployment, err)
	}
	return nil
}

// deploymentIn returns the deployment that the newest record names; a zero one if all records are damaged.
func deploymentIn(records map[int]Record) (d Deployment) {
	newest := uint64(0)
	for _, r := range records {
		if !r.Damaged && r.Revision > newest {
			d, newest = r.Deployment, r.Revision
		}
	}
	return d
}

// checkRecords returns ErrDeployment if a record has another layout than have: then the deployment was replaced by
// hand, or created while the records were lost.
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

func (k *Keeper) warnOfDamage(records map[int]Record) {
	for w, r := range records {
		if r.Damaged {
			k.alarms.set(RegistryConflict, fmt.Sprintf("the record of number %d is damaged or of another version: "+
				"its window is unknown, so it is left alone; start that version, or delete the key %d once no worker "+
				"can have the number", w, w))
			return
		}
	}
	k.alarms.clear(RegistryConflict)
}
