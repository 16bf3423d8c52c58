package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/workerid"
)

// home is the registry of this process, as oneregistry sees it: the marks and worker numbers in JetStream, and the
// store of the tags.
type home struct {
	storage  *storage
	segments func() *segment.Allocator
	created  func(tag string) // announces a tag that was changed

	mu   sync.Mutex
	live []int // worker numbers, as listed last
}

var _ oneregistry.Home = (*home)(nil)

// verdictKey is the key among the records under which a registry remembers a second one.
const verdictKey = "second-registry"

// Read implements [oneregistry.Home].
func (h *home) Read(ctx context.Context, count bool) (f oneregistry.Facts, err error) {
	r := h.storage.registry
	if r == nil {
		return f, errors.New("the registry is not open")
	}
	d, made, err := r.Stored(ctx)
	if err != nil {
		return f, err
	}
	f.Numbers, f.Made = d.ID, made
	if err := h.readMarks(ctx, &f); err != nil {
		return f, err
	}
	if f.Verdict, err = readVerdict(ctx, r); err != nil {
		return f, err
	}
	if count {
		f.Live = h.listLive(ctx, r)
	}
	return f, nil
}

// readMarks reads the identity of the bucket of the marks, if there is one. A bucket that must not be used may have
// one, too.
func (h *home) readMarks(ctx context.Context, f *oneregistry.Facts) error {
	if h.storage.marks == nil {
		return nil
	}
	id, err := h.storage.marks.Check(ctx)
	if err != nil && !kvstore.Refuses(err) && !errors.Is(err, kvstore.ErrNoIdentity) {
		return err
	}
	if f.Segments = id.Registry; !id.Made.IsZero() {
		f.Made = id.Made
	}
	return nil
}

func readVerdict(ctx context.Context, r *kvregistry.Registry) (v oneregistry.Verdict, err error) {
	value, revision, err := r.Note(ctx, verdictKey)
	if err != nil || revision == 0 {
		return v, err
	}
	if v, err = decodeVerdict(value); err != nil {
		return v, fmt.Errorf("key %s of bucket id_history is damaged; put back {\"yields\":\"<registry>\"} "+
			"if this registry had yielded, else {}: %w", verdictKey, err)
	}
	v.Revision = revision
	return v, nil
}

func decodeVerdict(value []byte) (v oneregistry.Verdict, err error) {
	if err := json.Unmarshal(value, &v); err != nil {
		return oneregistry.Verdict{}, err
	}
	if v.Yields != "" && !oneregistry.IsID(v.Yields) {
		return oneregistry.Verdict{}, fmt.Errorf("yields is %.40q, which is not the ID of a registry", v.Yields)
	}
	return v, nil
}

// listTimeout bounds a listing of heartbeats.
const listTimeout = 700 * time.Millisecond

// listLive returns the worker numbers that have a heartbeat, or those of the last listing if this one fails: they only
// weigh in the choice of who stays.
func (h *home) listLive(ctx context.Context, r *kvregistry.Registry) []int {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	beats, err := r.Heartbeats(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.live = slices.Sorted(maps.Keys(beats))
	}
	return slices.Clone(h.live)
}

// Decide implements [oneregistry.Home].
func (h *home) Decide(ctx context.Context, v oneregistry.Verdict) error {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: strings, bools and a time
	}
	err = h.storage.registry.SetNote(ctx, verdictKey, value, v.Revision)
	if errors.Is(err, workerid.ErrConflict) {
		return oneregistry.ErrConflict
	}
	return err
}

// Marks implements [oneregistry.Home].
func (h *home) Marks(ctx context.Context, after string, limit int) (all []oneregistry.Mark, err error) {
	tags, err := h.storage.tags.List(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	floors := h.segments().Floors()
	for _, t := range tags {
		all = append(all, oneregistry.Mark{
			Tag: t.Name, High: max(t.MaxID, floors[t.Name].End), Step: t.Step, Disabled: t.Disabled,
		})
	}
	return all, nil
}

// liftAtOnce is how many tags are lifted at once.
const liftAtOnce = 16

// Lift implements [oneregistry.Home].
func (h *home) Lift(ctx context.Context, marks []oneregistry.Mark) ([]oneregistry.Span, map[string]string) {
	var spans []oneregistry.Span
	failed := map[string]string{}
	var mu sync.Mutex
	var work sync.WaitGroup
	queue := make(chan oneregistry.Mark)
	for range min(liftAtOnce, len(marks)) {
		work.Go(func() {
			for m := range queue {
				end, err := h.lift(ctx, m)
				mu.Lock()
				if err != nil {
					failed[m.Tag] = err.Error()
				} else if end > 1 {
					spans = append(spans, oneregistry.Span{Tag: m.Tag, First: 1, End: end})
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range marks {
		queue <- m
	}
	close(queue)
	work.Wait()
	slices.SortFunc(spans, func(a, b oneregistry.Span) int { return cmp.Compare(a.Tag, b.Tag) })
	return spans, failed
}

// lift lifts one tag, and returns the end of what both registries may have issued of it. Of a tag that was lifted
// before, by an attempt whose reply was lost, it returns a higher one: how far this registry was is not known any more.
func (h *home) lift(ctx context.Context, m oneregistry.Mark) (end int64, err error) {
	lifter, ok := h.storage.tags.(segment.Lifter)
	if !ok {
		return 0, errors.New("the store cannot lift marks")
	}
	t, err := h.storage.tags.Look(ctx, m.Tag)
	if err != nil && !errors.Is(err, segment.ErrUnknownTag) {
		return 0, err
	}
	if t.Least >= m.High {
		return m.High, nil // merged before
	}
	if err := lifter.Lift(ctx, m.Tag, segment.Floor{End: m.High, Step: m.Step, Live: !m.Disabled}); err != nil {
		return 0, err
	}
	h.created(m.Tag)
	return min(t.MaxID, m.High), nil
}

// renewPage is how many tags are read at once.
const renewPage = 1000

// Renew implements [oneregistry.Home]. By the law of [segment.Allocator.See], no ID below the least of a tag is issued
// from then on, loads under way included.
func (h *home) Renew(ctx context.Context) error {
	for after := ""; ; {
		tags, err := h.storage.tags.List(ctx, after, renewPage)
		if err != nil || len(tags) == 0 {
			return err
		}
		for _, t := range tags {
			h.segments().See(t)
		}
		after = tags[len(tags)-1].Name
	}
}
