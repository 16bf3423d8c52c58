package grants

import (
	"context"
	"errors"
	"time"
)

// A Found is a grant in which an ID may have been issued. One of Load and Window is set.
type Found struct {
	At     At
	Head   Head
	Load   *Load
	Window *Window
}

// late is how long after its acknowledgement a window may be written into the stream.
const late = 10 * time.Minute

// FindLoads returns loads of a tag that contain an ID: none only if the stream has none, more than one only if a law
// was broken, or for loads of two registries. It reads the entries around the place found by bisection, and the rest
// of the stream only if the load is not among them. An audit finds all.
//
// It reads no entry twice, and decodes only the head of an entry without the tag: see [Reader.Only].
func (r *Reader) FindLoads(ctx context.Context, tag string, id int64) (found []Found, err error) {
	collect := func(at At, b *Batch) bool {
		for _, l := range b.Loads {
			if l.Tag == tag && l.First <= id && id <= l.Last {
				found = append(found, Found{at, b.Head, &l, nil})
			}
		}
		return true
	}
	r.Only(tag)
	defer func() { r.only = nil }()
	first, last, err := r.bisect(ctx, tag, id)
	if err != nil {
		return nil, err
	}
	if first, err = r.after(ctx, first, -disorder); err != nil {
		return nil, err
	}
	if last, err = r.after(ctx, last, disorder); err != nil {
		return nil, err
	}
	if _, err = r.Scan(ctx, first, last, collect); err != nil || len(found) > 0 {
		return once(found), err
	}
	if first > r.First {
		if _, err = r.Scan(ctx, r.First, first-1, collect); err != nil {
			return nil, err
		}
	}
	_, err = r.Scan(ctx, last+1, r.Last, collect)
	return once(found), err
}

// disorder is how far loads may be out of order in the stream, except those that waited during an outage of
// JetStream.
const disorder = time.Minute

// after returns the first entry that was stored a time after another entry, or later.
func (r *Reader) after(ctx context.Context, sequence uint64, d time.Duration) (uint64, error) {
	at, _, ok, err := r.Get(ctx, sequence)
	if !ok || err != nil && !errors.Is(err, ErrUnreadable) {
		at.Time = time.Now()
	}
	return r.From(ctx, at.Time.Add(d))
}

// once drops second copies of entries, which were written again after a lost acknowledgement.
func once(found []Found) (all []Found) {
	seen := make(map[Head]bool)
	for _, f := range found {
		key := Head{Process: f.Head.Process, Entry: f.Head.Entry}
		if !seen[key] {
			seen[key] = true
			all = append(all, f)
		}
	}
	return all
}

// probes is how many consecutive entries without the tag bisection reads before it gives up.
const probes = 32

// bisect returns the range of entries that has the load of an ID, if the loads of the tag rise. It costs some log2(n)
// requests for a tag that is in every entry, and up to 32 times as many for a rarer tag.
func (r *Reader) bisect(ctx context.Context, tag string, id int64) (first, last uint64, err error) {
	low, high := r.First, r.Last+1 // the load is in [low, high)
search:
	for high-low > 64 && low < high {
		middle := low + (high-low)/2
		for i := range uint64(probes) {
			at, b, ok, err := r.Get(ctx, middle+i)
			if errors.Is(err, ErrUnreadable) {
				continue
			}
			if err != nil {
				return 0, 0, err
			}
			if !ok || at.Sequence >= high {
				break search
			}
			lowest, highest := b.bounds(tag)
			switch {
			case highest == 0:
				continue
			case highest < id:
				low = at.Sequence
			case lowest > id:
				high = at.Sequence
			default:
				low, high = at.Sequence, at.Sequence+1
			}
			continue search
		}
		break
	}
	return low, high, nil
}

// bounds returns the lowest and the highest ID of a tag in the entry; 0 for none.
func (b *Batch) bounds(tag string) (lowest, highest int64) {
	for _, l := range b.Loads {
		if l.Tag == tag {
			if lowest == 0 || l.First < lowest {
				lowest = l.First
			}
			highest = max(highest, l.Last)
		}
	}
	return lowest, highest
}

// reach is how long before a time a window that contains it was written at most, unless the horizon is longer.
const reach = 15 * time.Minute

// FindWindows returns the windows of a number that contain a time, as FindLoads returns loads. Of each process it
// returns one window, and none if that window was closed before the time.
func (r *Reader) FindWindows(ctx context.Context, number int, ms int64) (found []Found, err error) {
	of := make(map[string]int) // by process, index into found
	collect := func(at At, b *Batch) bool {
		for _, w := range b.Windows {
			if w.Number != number {
				continue
			}
			i, known := of[b.Process]
			contains := w.From <= ms && ms < w.Until
			switch {
			case w.How == Closed && known && found[i].Window.From == w.From && !contains:
				found[i].Window = nil // it issued nothing at that time
			case contains && (!known || found[i].Window == nil):
				of[b.Process] = len(found)
				found = append(found, Found{at, b.Head, nil, &w})
			}
		}
		return true
	}
	pick := func() (all []Found) {
		for _, f := range found {
			if f.Window != nil {
				all = append(all, f)
			}
		}
		return all
	}
	t := time.UnixMilli(ms)
	first, err := r.From(ctx, t.Add(-reach))
	if err != nil {
		return nil, err
	}
	last, err := r.From(ctx, t.Add(late))
	if err != nil {
		return nil, err
	}
	if _, err = r.Scan(ctx, first, last, collect); err != nil || len(pick()) > 0 {
		return pick(), err
	}
	found, of = nil, make(map[string]int)
	_, err = r.Scan(ctx, r.First, r.Last, collect)
	return pick(), err
}
