package buckets

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// compare logs how the replicas and the TTL of a bucket differ from those that this process would have made it with.
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

// Judge returns [ErrUnfit] for settings on which natsid must not rely: a permanent bucket that forgets values, or any
// bucket that takes what others than natsid write, or refuses what natsid writes.
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
