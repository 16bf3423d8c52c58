package kvstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/buckets"
)

// Kind is what a bucket of marks is to its workers. Workers of one namespace share one kind.
type Kind string

// The kinds.
const (
	Alone   Kind = "kv"    // the marks are the store
	Guarded Kind = "mysql" // the marks guard a table
)

// An Identity says which registry of tags a bucket holds. It is written once, when the bucket is made, under a key that
// no tag can have, and never changes but for an operator.
//
// A bucket without one is not original: it was purged, or made again after it was lost. What was in it is unknown, so
// any tag could be one that other workers have loaded, and no tag is made on first use.
type Identity struct {
	Registry string    `json:"registry"` // a random ID
	Made     time.Time `json:"made"`
	Kind     Kind      `json:"kind"`
	// Confirmed is when an operator said that all tags of an earlier registry are back, above their IDs.
	Confirmed time.Time `json:"confirmed,omitzero"`
	// Version is the level of natsid that workers must have, see package policy; 0 is 1.
	Version int `json:"version,omitempty"`
}

// levelOfThis is the highest level that this natsid has. A natsid of before has 1, and refuses the bucket, at its start
// and from its next Check on, once the level is raised.
const levelOfThis = 3

// identityKey is the key of the identity.
const identityKey = buckets.Own

var (
	// ErrNoIdentity is returned for a bucket without identity.
	ErrNoIdentity = errors.New("the bucket of the marks is not the original one")
	// ErrIdentity is returned for an identity that cannot be read.
	ErrIdentity = errors.New("the identity of the bucket of the marks cannot be read")
	// ErrKind is returned for a bucket of another kind than this worker's.
	ErrKind = errors.New("the marks are of another kind of store")
	// ErrRegistry is returned for a bucket that has taken the place of the one that this process used.
	ErrRegistry = errors.New("the bucket of the marks is another registry's now")
)

// Refuses reports whether an outcome of [Store.Check] ends all loads and changes, and not first use alone.
func Refuses(err error) bool {
	return errors.Is(err, buckets.ErrUnfit) || errors.Is(err, ErrIdentity) || errors.Is(err, ErrKind) ||
		errors.Is(err, ErrRegistry)
}

func (id Identity) encode() []byte {
	b, err := json.Marshal(id)
	if err != nil {
		panic(err) // impossible: strings, times and an integer
	}
	return b
}

func decodeIdentity(value []byte) (id Identity, err error) {
	const remedy = "look at it with `natsid store show`; `natsid store confirm` replaces it"
	switch err := json.Unmarshal(value, &id); {
	case err != nil:
		return Identity{}, fmt.Errorf("%w: it is damaged; %s: %w", ErrIdentity, remedy, err)
	case id.Version > levelOfThis:
		return Identity{}, fmt.Errorf("%w: it is of version %d, written by a newer natsid; use that one",
			ErrIdentity, id.Version)
	case id.Registry == "" || id.Kind != Alone && id.Kind != Guarded:
		return Identity{}, fmt.Errorf("%w: it has registry %q and kind %q; %s",
			ErrIdentity, id.Registry, id.Kind, remedy)
	}
	return id, nil
}

// Identity returns the identity that the last Check read; a zero one before the first, and if there is none.
func (s *Store) Identity() Identity {
	if v := s.verdict.Load(); v != nil {
		return v.id
	}
	return Identity{}
}

// Bucket names the bucket that the last Check found: by the registry that it holds, or by when it was made if it has no
// identity. It is "" before the first Check, and while the bucket must not be used.
//
// Law: no two buckets have one name. A registry is a random ID; and two are not made in one nanosecond, with one first
// revision.
func (s *Store) Bucket() string {
	v := s.verdict.Load()
	switch {
	case v == nil || Refuses(v.err):
		return ""
	case v.id.Registry != "":
		return v.id.Registry
	}
	return v.made
}

// Level returns the level of the identity that the last Check read, 0 if it could not be read.
func (s *Store) Level() int {
	if id := s.Identity(); id.Registry != "" {
		return max(1, id.Version)
	}
	return 0
}

// RaiseLevel raises the level of the bucket's identity, by a compare-and-set that changes nothing else.
func (s *Store) RaiseLevel(ctx context.Context, level int) error {
	for {
		kve, err := s.kv.Get(ctx, identityKey)
		if errors.Is(err, buckets.ErrNoKey) {
			return fmt.Errorf("%w: bucket %s has no identity: see `natsid store show`", ErrNoIdentity, s.cfg.Bucket)
		}
		if err != nil {
			return err
		}
		id, err := decodeIdentity(kve.Value)
		if err != nil {
			return err
		}
		if id.Version < level {
			id.Version = level
			_, err = s.kv.Update(ctx, identityKey, id.encode(), kve.Revision)
		}
		if !errors.Is(err, buckets.ErrRevision) {
			if err == nil {
				_, err = s.Check(ctx)
			}
			return err
		}
	}
}

// Check reads the settings and the identity of the bucket. It returns [buckets.ErrUnfit], [ErrIdentity], [ErrKind] or
// [ErrRegistry] for a bucket that this store must not use: then all loads and changes are refused until Check finds it
// well again. It returns [ErrNoIdentity] for one in which no tag is made on first use. After any other error nothing is
// known, and what held before goes on to hold.
func (s *Store) Check(ctx context.Context) (Identity, error) {
	state, err := s.kv.Look(ctx)
	id := Identity{}
	if err == nil {
		id, err = s.identify(ctx, state)
	}
	if err == nil || Refuses(err) || errors.Is(err, ErrNoIdentity) {
		s.judge(verdict{id, fmt.Sprintf("made-%d-%d", state.Created.UnixNano(), state.FirstSeq), err})
	}
	return id, err
}

// identify reads the identity, or gives the bucket one if that is safe.
func (s *Store) identify(ctx context.Context, state buckets.State) (Identity, error) {
	id, err := s.readIdentity(ctx)
	if errors.Is(err, buckets.ErrNoKey) {
		id, err = s.found(ctx, state)
	}
	if err != nil {
		return Identity{}, err
	}
	return id, s.compare(id)
}

func (s *Store) readIdentity(ctx context.Context) (Identity, error) {
	kve, err := s.kv.Get(ctx, identityKey)
	if err != nil {
		return Identity{}, err
	}
	return decodeIdentity(kve.Value)
}

// compare compares an identity with this store's kind and with what this process knew.
func (s *Store) compare(id Identity) error {
	if id.Kind != s.cfg.Kind {
		return fmt.Errorf("%w: bucket %s is of kind %s, this worker of kind %s; start it %s, or move the tags with "+
			"`natsid store move`", ErrKind, s.cfg.Bucket, id.Kind, s.cfg.Kind, id.Kind.how())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == "" || !id.Confirmed.IsZero() {
		s.known = id.Registry
	}
	if s.known != id.Registry {
		return fmt.Errorf("%w: bucket %s holds registry %s, and this worker has ranges of registry %s; "+
			"make sure that each tag is above every ID of both, then run `natsid store confirm`",
			ErrRegistry, s.cfg.Bucket, id.Registry, s.known)
	}
	return nil
}

// how says how a worker of a kind is started.
func (k Kind) how() string {
	if k == Guarded {
		return "with --mysql"
	}
	return "without --mysql"
}

// found gives a bucket its identity, if this process has just made it as the first of its name, or if it is one of
// before: made by a natsid that wrote none, or by hand. Otherwise it returns [ErrNoIdentity].
//
// A process that knew another identity never founds: what it saw is gone.
func (s *Store) found(ctx context.Context, state buckets.State) (Identity, error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if as := Kind(state.AgainAs); as != "" && as != s.cfg.Kind {
		return Identity{}, fmt.Errorf("%w: bucket %s was lost, and made again by a worker of kind %s; "+
			"start this worker %s, or run `natsid store confirm` and then `natsid store move`",
			ErrKind, s.cfg.Bucket, as, as.how())
	}
	if known != "" {
		return Identity{}, s.noIdentity("it was purged, or lost and made again")
	}
	if state.Founding {
		return s.await(ctx)
	}
	if !state.Mine {
		if why, err := s.adoptable(ctx, state); why != "" || err != nil {
			return Identity{}, errors.Join(err, s.noIdentityUnless(err, why))
		}
	}
	if err := s.mayFound(ctx); err != nil {
		return Identity{}, s.noIdentity(err.Error())
	}
	return s.write(ctx, state)
}

// errFounding says that another worker has made the bucket just now, and has not written its identity yet.
var errFounding = errors.New("kvstore: another worker is making the bucket of the marks; retry")

// await returns the identity that another worker is about to write, or errFounding if it does not within 10 s.
func (s *Store) await(ctx context.Context) (Identity, error) {
	for range 500 {
		id, err := s.readIdentity(ctx)
		if !errors.Is(err, buckets.ErrNoKey) {
			return id, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return Identity{}, ctx.Err()
		}
	}
	return Identity{}, errFounding
}

// foundNow gives a bucket that this process has just made its identity. Where that fails, the next Check tries again.
func (s *Store) foundNow(ctx context.Context, state buckets.State) {
	if s.mayFound(ctx) == nil {
		_ = s.kv.Found(ctx, state, identityKey, s.newIdentity().encode())
	}
}

func (s *Store) mayFound(ctx context.Context) error {
	if s.cfg.MayFound == nil {
		return nil
	}
	return s.cfg.MayFound(ctx)
}

func (s *Store) newIdentity() Identity {
	return Identity{Registry: rand.Text(), Made: time.Now().UTC().Truncate(time.Second), Kind: s.cfg.Kind}
}

func (s *Store) noIdentity(why string) error {
	return fmt.Errorf("%w: bucket %s has no identity: %s. No tag is created on first use. Create each tag that was in "+
		"use with a start far above its IDs, then run `natsid store confirm`", ErrNoIdentity, s.cfg.Bucket, why)
}

func (s *Store) noIdentityUnless(err error, why string) error {
	if err != nil {
		return nil
	}
	return s.noIdentity(why)
}

// write writes a new identity, unless another worker was faster.
func (s *Store) write(ctx context.Context, state buckets.State) (Identity, error) {
	id := s.newIdentity()
	err := s.kv.Found(ctx, state, identityKey, id.encode())
	switch {
	case errors.Is(err, buckets.ErrKeyRemoved):
		return Identity{}, s.noIdentity("it was removed")
	case errors.Is(err, buckets.ErrKeyExists):
		return s.readIdentity(ctx)
	case err != nil:
		return Identity{}, err
	case !state.Mine:
		s.log.Info("the bucket of the marks was made without an identity and has one now; from now on a purge or a "+
			"loss is noticed", "bucket", s.cfg.Bucket, "registry", id.Registry, "kind", id.Kind)
		s.kv.Mark(ctx)
	}
	return id, nil
}

// adoptable returns why a bucket that this process did not make must not get an identity, "" if it may.
//
// A bucket that was made or adopted by a natsid that writes identities had one: it is never adopted. One of before is
// adopted if it has tags. Without any it may have been purged, unless it was made by hand, with the first revision 1,
// and nothing was ever written into it.
func (s *Store) adoptable(ctx context.Context, state buckets.State) (why string, err error) {
	if state.Maker != "" {
		return "it was purged, or lost and made again", nil
	}
	all, removed, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return "", err
	}
	if len(all)+len(removed) == 0 && state.LastSeq > 0 {
		return "it is empty, so it may have been purged", nil
	}
	for tag, kve := range all {
		if e, err := s.decode(kve); err == nil && e.Seen > 0 && s.cfg.Kind == Alone {
			return "", fmt.Errorf("%w: the mark of tag %s in bucket %s guards a row in MySQL; start this worker with "+
				"--mysql, or move the tags with `natsid store move`", ErrKind, tag, s.cfg.Bucket)
		}
	}
	return "", nil
}

// A verdict is what Check found last.
type verdict struct {
	id   Identity
	made string // when and from which revision on the bucket was made
	err  error
}

// text is equal for equal verdicts.
func (v verdict) text() string {
	if v.err == nil {
		return ""
	}
	return v.err.Error()
}

// judge keeps a verdict, and reports one that differs from that before.
func (s *Store) judge(v verdict) {
	old := s.verdict.Swap(&v)
	if s.cfg.Changed != nil && (old == nil && v.err != nil || old != nil && old.text() != v.text()) {
		s.cfg.Changed(v.err)
	}
}

// refused returns why the bucket must not be used at present, nil if it may.
func (s *Store) refused() error {
	if v := s.verdict.Load(); v != nil && Refuses(v.err) {
		return v.err
	}
	return nil
}

// MayCreate implements [segment.Marks]: it returns nil if a tag without a mark never had one.
func (s *Store) MayCreate(ctx context.Context) error {
	_, err := s.Check(ctx)
	return unoriginal(err)
}
