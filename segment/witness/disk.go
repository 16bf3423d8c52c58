package witness

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// diskTimeout bounds a write of the journal, diskPause is that after one that failed.
	diskTimeout = time.Second
	diskPause   = 10 * time.Second
)

// A disk is what is known of the data directory.
type disk struct {
	failing bool       // the last write failed, or did not end in time
	behind  bool       // what is on disk misses a write
	next    time.Time  // no write begins before
	late    chan error // has the outcome of a write that did not end in time; nil if there is none
}

var errDiskHangs = errors.New("the disk does not answer")

// toDisk calls a function that writes to the data directory, and waits for it no longer than diskTimeout. After a
// failure the directory is left alone for diskPause, and while a write hangs: it could end after a later one.
//
// Law: a journal that misses some writes is an older one. A process that starts with it finds a witness that it does
// not recognize, and begins a new one, whose earlier life is lost: see copied. It recognizes one that went back as far
// as the journal: see [Witness.succeed]. Written again, the journal is whole.
func (w *Witness) toDisk(write func() error) {
	d := &w.disk
	if w.journal.dir == "" {
		return
	}
	d.behind = true
	if d.hear(0); d.late == nil && !time.Now().Before(d.next) {
		w.writeWithin(diskTimeout, write)
	}
}

// lastToDisk is toDisk for the floors of a life that ends: no later write makes up for it. So it waits for one that
// hangs, and tries whatever came of the last one. It leaves a second of ctx.
func (w *Witness) lastToDisk(ctx context.Context, write func() error) {
	if w.journal.dir == "" {
		return
	}
	end := time.Now().Add(diskTimeout)
	if last, ok := ctx.Deadline(); ok && last.Add(-tick).After(end) {
		end = last.Add(-tick)
	}
	if w.disk.hear(time.Until(end)); w.disk.late == nil {
		w.writeWithin(time.Until(end), write)
	}
}

// hear takes in how a late write ended. It waits for that, but no longer than so long.
func (d *disk) hear(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for d.late != nil {
		select {
		case err := <-d.late:
			if d.late = nil; err == nil { // the disk is slow, and no more
				d.next = time.Time{}
			}
		case <-timer.C:
			if len(d.late) == 0 {
				return
			}
		}
	}
}

func (w *Witness) writeWithin(wait time.Duration, write func() error) {
	d, done := &w.disk, make(chan error, 1)
	go func() { done <- write() }()
	err := errDiskHangs
	select {
	case err = <-done:
	case <-time.After(wait):
		d.late = done
	}
	failed := d.failing
	d.failing, d.behind, d.next = err != nil, err != nil, time.Time{}
	switch {
	case err != nil:
		d.next = time.Now().Add(diskPause)
		if !failed {
			w.cfg.JournalAlarm(fmt.Sprintf("witness: %s cannot be written: %v; until it can, this worker would not "+
				"notice at its next start if the marks went back: repair the data directory", w.journal.path(), err))
		}
	case failed:
		w.cfg.Log.Info("the journal of the witness is written again", "file", w.journal.path())
	}
}

// noteAgain writes the journal if the one on disk misses a write, unless the witness is busy.
func (w *Witness) noteAgain() {
	select {
	case w.busy <- struct{}{}:
		defer w.leave()
		if w.disk.behind {
			w.note()
		}
	default:
	}
}
