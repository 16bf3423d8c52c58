package buckets

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// placed is a JetStream without buckets. It makes one with at most so many
// replicas, and refuses more with refusal.
type placed struct {
	Streams
	most    int
	refusal error
	made    []int // replicas of each bucket that was made
	async   bool  // the last one
}

func (p *placed) Info(context.Context, string) (Info, error) {
	if len(p.made) == 0 {
		return Info{}, ErrNoBucket
	}
	return sound(p.made[0]), nil
}

func (p *placed) Make(_ context.Context, c jetstream.StreamConfig) error {
	if c.Replicas > p.most {
		return p.refusal
	}
	p.made, p.async = append(p.made, c.Replicas), c.PersistMode == jetstream.AsyncPersistMode
	return nil
}

func TestReplicasAreWhatJetStreamAccepts(t *testing.T) {
	none := fmt.Errorf("%w: no suitable peers for placement", ErrFewServers)
	away := fmt.Errorf("%w: no suitable peers for placement, peer offline", ErrFewServers)
	for name, c := range map[string]struct {
		chosen int
		server placed
		after  time.Duration // until it is made; -1 is never
		want   int
	}{
		"three servers":                       {server: placed{most: 3}, want: 3},
		"one server":                          {server: placed{most: 1, refusal: ErrOneServer}, want: 1},
		"a cluster of two":                    {server: placed{most: 2, refusal: none}, after: forming, want: 1},
		"a cluster, one server away":          {server: placed{most: 2, refusal: away}, after: -1},
		"one server, three are asked for":     {chosen: 3, server: placed{most: 1, refusal: ErrOneServer}, after: -1},
		"a cluster of two, two are asked for": {chosen: 2, server: placed{most: 2, refusal: none}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(&c.server, Config{Name: "b", Replicas: c.chosen, Fleeting: true})
				start := time.Now()
				for time.Since(start) < time.Hour {
					if _, err := b.Open(t.Context()); err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				took := time.Since(start).Truncate(time.Second)
				if single := errors.Is(c.server.refusal, ErrOneServer); c.server.async != (single && c.want == 1) {
					t.Errorf("async is %v: a cluster could not give the bucket more replicas", c.server.async)
				}
				if c.after < 0 {
					if len(c.server.made) > 0 {
						t.Errorf("made with %d replicas", c.server.made)
					}
					return
				}
				if took != c.after || len(c.server.made) != 1 || c.server.made[0] != c.want {
					t.Errorf("made with %d replicas after %v, want %d after %v", c.server.made, took, c.want, c.after)
				}
			})
		})
	}
}

func TestAClusterThatFormsGetsThreeReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &placed{most: 2, refusal: ErrFewServers}
		b := New(s, Config{Name: "b"})
		for range 25 {
			if _, err := b.Open(t.Context()); !errors.Is(err, ErrFewServers) {
				t.Fatalf("opened with %v while the cluster forms", err)
			}
			time.Sleep(time.Second)
		}
		s.most = 3 // the last server has joined
		if _, err := b.Open(t.Context()); err != nil || s.made[0] != 3 {
			t.Errorf("made with %v, %v", s.made, err)
		}
	})
}
