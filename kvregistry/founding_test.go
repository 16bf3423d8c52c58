package kvregistry

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/workerid"
)

// A slowStream hides the last entry of a key from some reads, as a leader does that most replicas have not followed.
type slowStream struct {
	buckets.Streams
	hides atomic.Int64
}

func (s *slowStream) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	if s.hides.Add(-1) >= 0 {
		return buckets.Entry{}, buckets.ErrNoKey
	}
	return s.Streams.Last(ctx, bucket, key)
}

func TestADeploymentThatCannotBeReadYetIsWaitedFor(t *testing.T) {
	slow := &slowStream{Streams: buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t)))}
	r := &Registry{history: buckets.New(slow, buckets.Config{Name: "slow"})}
	d := workerid.Deployment{ID: "D", Layout: "41/10/12", Unit: 1}
	if err := r.Found(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	slow.hides.Store(4) // each try reads it twice
	if err := r.Found(t.Context(), d); !errors.Is(err, workerid.ErrConflict) {
		t.Errorf("the second worker founds: %v, want ErrConflict", err)
	}
	if have, err := r.Deployment(t.Context()); err != nil || have != d {
		t.Errorf("then it reads %+v, %v", have, err)
	}
	slow.hides.Store(1 << 40)
	if err := r.Found(t.Context(), d); !errors.Is(err, workerid.ErrNoDeployment) {
		t.Errorf("a deployment that is never read: %v, want ErrNoDeployment", err)
	}
}
