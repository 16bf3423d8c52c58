package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
)

// inOrder is the state of a store about which an operator need do nothing.
const inOrder = "in order"

// storeState returns in one line what is wrong with the store, and what to do about it; [inOrder] if nothing is.
func storeState(r kvstore.Report) string {
	switch {
	case r.Unfit != nil:
		return r.Unfit.Error()
	case r.Trouble != nil:
		return r.Trouble.Error() + ": run `natsid resume`"
	case r.Identity.Incident != nil:
		in := r.Identity.Incident // as workers word it
		return fmt.Sprintf("%v: %s: %s; run `natsid resume`", lineage.ErrStopped, in.Cause, in.Why())
	case len(r.Damaged) > 0:
		return fmt.Sprintf("%d damaged entries, such as that of tag %s: replace them with `nats kv put`",
			len(r.Damaged), r.Damaged[0])
	}
	return inOrder
}

// commandTimeout bounds a command that has only short steps; it allows for requests that are repeated.
const commandTimeout = 25 * time.Second

func (s *session) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, commandTimeout)
}

// onJetStream returns access to buckets for a command: each request to JetStream ends within [buckets.Patience].
func onJetStream(js jetstream.JetStream) buckets.Streams {
	return buckets.Patient(buckets.OnJetStream(js))
}

// withJetStream calls f with JetStream, and with a context that ends after [commandTimeout].
func (s *session) withJetStream(f func(context.Context, jetstream.JetStream) error) error {
	return s.withNATS(func(nc *nats.Conn) error {
		js, err := s.jetStream(nc)
		if err != nil {
			return err
		}
		ctx, cancel := s.soon()
		defer cancel()
		return f(ctx, js)
	})
}

// inspect returns the content of the bucket of marks, the next IDs of the tags. It fails if there is no such bucket.
func (s *session) inspect(ctx context.Context, js jetstream.JetStream) (kvstore.Report, error) {
	bucket := wire.SegmentBucket(s.namespace())
	r, err := kvstore.Inspect(ctx, onJetStream(js), bucket)
	switch {
	case errors.Is(err, buckets.ErrNoBucket):
		err = fmt.Errorf("no bucket %s: no worker has kept marks in namespace %s; check --nats and --namespace",
			bucket, s.namespace())
	case err != nil:
		err = fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	return r, err
}
