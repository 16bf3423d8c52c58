package buckets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// firstSeq returns the first revision of a bucket that is created now. It is above every revision that a bucket of
// this name ever had, so none is repeated. This holds unless the clock was set back by more than the age of the
// former bucket, and even then if this process has seen its revisions.
func (b *Bucket) firstSeq() uint64 {
	const margin = 1_000_000 // for writes of other workers that this one has not seen
	return max(uint64(time.Now().UnixMicro()), b.seen.Load()+margin)
}

// makerKey is a key in the metadata of each stream that natsid made; a stream that was made by hand lacks it.
const makerKey = "natsid-maker"

// The values of makerKey: the bucket is the first of its name, or is not.
const (
	founded    = "founded"
	notFounded = "not founded"
)

// mayFound reports whether this bucket may be the first of its name. An error says that this is not known.
func (b *Bucket) mayFound(ctx context.Context) (bool, error) {
	if again := b.again.Load(); again || b.cfg.MayFound == nil {
		return !again, nil
	}
	err := b.cfg.MayFound(ctx)
	if errors.Is(err, ErrInUse) {
		b.cfg.Log.Warn("a bucket is not the first of its name: another one was in use; no tag is created on first use "+
			"in it", "bucket", b.bucket, "error", err)
		return false, nil
	}
	return err == nil, err
}

// make makes the stream that [jetstream.KeyValueConfig] describes (ADR-8), but with FirstSeq and without AllowDirect:
// the package comment says why.
func (b *Bucket) make(ctx context.Context) error {
	cfg, by := b.cfg, founded
	switch may, err := b.mayFound(ctx); {
	case err != nil:
		return err
	case !may:
		by = notFounded
	}
	c := jetstream.StreamConfig{
		Name: streamName(cfg.Name), Description: cfg.Description, Subjects: []string{subjectPrefix(cfg.Name) + ">"},
		FirstSeq: b.firstSeq(), MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: cmp.Or(cfg.MaxBytes, -1), MaxMsgSize: -1,
		MaxConsumers: -1, MaxAge: cfg.TTL, Replicas: cfg.Replicas, Discard: jetstream.DiscardNew, DenyDelete: true,
		DenyPurge: cfg.TTL == 0, AllowRollup: cfg.TTL > 0, Duplicates: min(2*time.Minute, cmp.Or(cfg.TTL, time.Hour)),
		Compression: jetstream.NoCompression, // nats-server 2.15 breaks compressed streams when it is killed
		Metadata:    map[string]string{makerKey: by},
	}
	if cfg.Whole {
		c.MaxMsgsPerSubject, c.AllowRollup, c.Discard = -1, false, jetstream.DiscardOld
	}
	err := b.place(ctx, c)
	for ; errors.Is(err, ErrFull) && c.MaxBytes > 4<<20; err = b.place(ctx, c) {
		c.MaxBytes /= 8 // JetStream reserves MaxBytes at once
	}
	return err
}

// chosen is the number of replicas of a bucket in a cluster, if the settings name none.
const chosen = 3

// place makes the stream. Unless the settings name a number of replicas, it chooses one: see [Bucket].
func (b *Bucket) place(ctx context.Context, c jetstream.StreamConfig) error {
	single := b.cfg.Alone && c.Replicas == 1
	if c.Replicas == 0 {
		c.Replicas = chosen
		err := b.streams.Make(ctx, c)
		if errors.Is(err, ErrFewServers) {
			return fmt.Errorf("JetStream shows fewer than %d servers: start them all, or choose with --replicas: %w",
				chosen, err)
		}
		if single = errors.Is(err, ErrOneServer); !single {
			return err
		}
		b.cfg.Log.Info("a bucket is made with 1 replica, since JetStream is a single server", "bucket", b.bucket)
		c.Replicas = 1
	}
	if single && b.cfg.Fleeting { // not in a cluster, as such a stream cannot get replicas later
		c.PersistMode = jetstream.AsyncPersistMode
		if err := b.streams.Make(ctx, c); err == nil || errors.Is(err, ErrBucketExists) {
			return err
		}
		c.PersistMode = jetstream.DefaultPersistMode // a server before 2.12 may refuse what it does not know
	}
	return b.streams.Make(ctx, c)
}

// compare logs how a bucket's replicas and TTL differ from those with which this process would have made the bucket.
func (c Config) compare(have Info) {
	replicas := cmp.Or(c.Replicas, have.Replicas)
	if replicas == 1 && c.Replicas == 0 && have.Clustered {
		replicas = chosen
	}
	if !c.Existing && (have.Replicas != replicas || have.MaxAge != c.TTL) {
		c.Log.Warn("an existing bucket differs from the settings and is used as it is", "bucket", c.Name,
			"replicas", have.Replicas, "wanted", replicas, "TTL", have.MaxAge.String(), "wanted TTL", c.TTL.String())
	}
}

// Judge returns [ErrUnfit] for settings on which natsid must not rely: a bucket without TTL forgets values, or a
// bucket takes what others than natsid write, or refuses what natsid writes.
func (c Config) Judge(i Info) error {
	unfit := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrUnfit}, args...)...)
	}
	own := []string{subjectPrefix(c.Name) + ">"}
	switch {
	case i.Mirror != nil:
		return unfit("it is a mirror of stream %s and takes no writes; delete it, and let natsid make its bucket",
			i.Mirror.Name)
	case len(i.Sources) > 0:
		return unfit("it also takes the messages of stream %s, which overwrite marks; remove the sources",
			i.Sources[0].Name)
	case i.Sealed:
		return unfit("it is sealed and takes no writes; restore it from a copy that is not")
	case i.SubjectTransform != nil || !slices.Equal(i.Subjects, own):
		return unfit("its subjects were changed to %s; set %s alone, without a transform", i.Subjects, own[0])
	case c.TTL > 0:
		return nil
	case i.MaxAge != 0:
		return unfit("it forgets what is older than %v (it has a TTL); remove the TTL", i.MaxAge)
	case i.Retention != jetstream.LimitsPolicy:
		return unfit("it forgets what was read; set its retention to limits")
	case i.Discard != jetstream.DiscardNew && (i.MaxMsgs > 0 || i.MaxBytes > 0):
		return unfit("it drops old entries when it is full; set its discard policy to new, or remove its limits")
	}
	return nil
}
