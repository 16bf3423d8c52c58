package buckets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// State is a bucket as [Bucket.Look] found it.
type State struct {
	Info
	// Mine reports whether this process made the bucket, saw none of its name before, and was allowed to found it.
	Mine bool
	// Founding reports whether another process made the bucket as the first of its name, just now.
	Founding bool
	// AgainAs is the Kind of the process that made the bucket again after it was lost; "" if none did.
	AgainAs string
}

// Untouched reports whether the bucket was made by hand, and nothing was ever written into it. Its first revision is 1.
func (s State) Untouched() bool { return s.Maker == "" && s.LastSeq == 0 }

// Makers of buckets that are not the first of their name, and of one that was made before there were identities.
const (
	madeAgain  = "made again: " // and the kind
	notFounded = "not founded"
	adopted    = "adopted"
	confirmed  = "confirmed"
)

// foundingTime is how long a process may take from making a bucket to writing what it is.
const foundingTime = 10 * time.Second

func (b *Bucket) state(i Info) State {
	s := State{Info: i, Mine: i.Maker == b.maker}
	if as, again := strings.CutPrefix(i.Maker, madeAgain); again {
		s.AgainAs = as
		return s
	}
	switch i.Maker {
	case "", notFounded, adopted, confirmed, b.maker:
	default:
		s.Founding = i.Now.Sub(i.Created) < foundingTime
	}
	return s
}

// Look reads the present settings of the bucket, opening it first if necessary. If they do not fit any more, Look
// returns [ErrUnfit], and so do all other calls until Look finds them corrected.
func (b *Bucket) Look(ctx context.Context) (State, error) {
	for range 2 {
		a, err := b.get(ctx)
		if err != nil {
			return State{}, err
		}
		info, err := b.streams.Info(ctx, b.cfg.Name)
		if err == nil {
			return b.state(info), b.note(info.Settings)
		}
		if !errors.Is(err, ErrNoBucket) {
			return State{}, err
		}
		b.forget(a, err)
	}
	return State{}, b.failed(ErrNoBucket)
}

// note keeps whether the settings fit.
func (b *Bucket) note(s Settings) error {
	err := b.cfg.Judge(s)
	if err == nil {
		b.changed.Store(nil)
		return nil
	}
	err = fmt.Errorf("bucket %s: %w", b.cfg.Name, err)
	if b.tolerates(s) {
		b.changed.Store(nil)
	} else {
		b.changed.Store(&err)
	}
	return err
}

// tolerates reports whether the bucket is used with any settings.
func (b *Bucket) tolerates(s Settings) bool { return b.cfg.Tolerant && s.Mirror == "" && !s.Sealed }

// unfit returns why the open bucket is not used, nil if it is.
func (b *Bucket) unfit() error {
	if err := b.changed.Load(); err != nil {
		return *err
	}
	return nil
}

// mismatch says how a bucket differs from what is wanted in a way that harms nothing.
func (c Config) mismatch(have Info) string {
	replicas := c.Replicas
	if replicas == 0 {
		replicas = have.Replicas
	}
	if replicas == 1 && c.Replicas == 0 && have.Clustered {
		replicas = chosen
	}
	if have.Replicas == replicas && have.MaxAge == c.TTL {
		return ""
	}
	return fmt.Sprintf("bucket %s has %d replicas and a TTL of %v, wanted %d and %v",
		c.Name, have.Replicas, have.MaxAge, replicas, c.TTL)
}

// Judge returns [ErrUnfit] for settings that natsid must not rely on. A bucket that keeps its values for ever must
// forget none; and no bucket may take what others than natsid write, or refuse what natsid writes.
func (c Config) Judge(s Settings) error {
	unfit := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrUnfit}, args...)...)
	}
	switch {
	case s.Mirror != "":
		return unfit("it is a mirror of stream %s and takes no writes; delete it, and let natsid make its bucket",
			s.Mirror)
	case len(s.Sources) > 0:
		return unfit("it also takes the messages of stream %s, which overwrite marks; remove the sources",
			strings.Join(s.Sources, ", "))
	case s.Sealed:
		return unfit("it is sealed and takes no writes; restore it from a copy that is not")
	case s.Subjects != nil:
		return unfit("its subjects were changed to %s; set %s> alone, without a transform",
			strings.Join(s.Subjects, ", "), subjectPrefix(c.Name))
	case c.Owner != "" && s.Owner != "" && s.Owner != c.Owner:
		return unfit("it belongs to registry %s, and this one is %s; delete its stream, and natsid makes another, "+
			"or separate the two", s.Owner, c.Owner)
	case c.TTL > 0:
		return nil
	case s.MaxAge != 0:
		return unfit("it forgets what is older than %v (it has a TTL); remove the TTL", s.MaxAge)
	case s.WorkQueue:
		return unfit("it forgets what was read; set its retention to limits")
	case !s.DiscardNew && (s.MaxMsgs > 0 || s.MaxBytes > 0):
		return unfit("it drops old entries when it is full; set its discard policy to new, or remove its limits")
	}
	return nil
}

// markTimeout bounds the update of a bucket. A user without the permission for it gets no answer.
const markTimeout = time.Second

// Mark marks the bucket as one that has an identity, see [Settings].Maker, and makes it refuse purges. A process that
// may not update the bucket works on without: then a purge is noticed only afterwards.
func (b *Bucket) Mark(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	if err := b.streams.Defend(ctx, b.cfg.Name, adopted); err != nil {
		b.cfg.Log.Warn("the bucket cannot be protected from being purged; a purge would lose what it keeps, and "+
			"would be noticed only afterwards; allow this user to update the bucket's stream, and restart natsid",
			"bucket", b.cfg.Name, "error", err)
	}
}

// Found writes the first value of a key into the very bucket that Look returned: not into another one that has taken
// its place meanwhile, for which it returns [ErrReplaced]. It returns [ErrKeyExists] if the key has a value, and
// [ErrKeyRemoved] if it had.
//
// The write names the bucket's highest revision. Those of a bucket made later lie above all of this one. Other writes
// come in between; after a few of them Found returns [ErrRevision].
func (b *Bucket) Found(ctx context.Context, s State, key string, value []byte) (err error) {
	for range 20 {
		if err = b.tryFound(ctx, s, key, value); !errors.Is(err, ErrRevision) {
			return err
		}
	}
	return err
}

func (b *Bucket) tryFound(ctx context.Context, s State, key string, value []byte) error {
	now, err := b.streams.Info(ctx, b.cfg.Name)
	if err != nil {
		return err
	}
	if !now.Created.Equal(s.Created) || now.FirstSeq != s.FirstSeq {
		return ErrReplaced
	}
	never := uint64(0)
	w := Write{Value: value, Last: &never, LastOfAll: &now.LastSeq}
	revision, err := b.streams.Publish(ctx, b.cfg.Name, key, w)
	b.Saw(revision) // 0 after an error
	if !errors.Is(err, ErrRevision) {
		return err
	}
	switch last, missing := b.streams.Last(ctx, b.cfg.Name, key); {
	case errors.Is(missing, ErrNoKey):
		return err
	case missing != nil:
		return missing
	case last.Removed:
		return ErrKeyRemoved
	}
	return ErrKeyExists
}
