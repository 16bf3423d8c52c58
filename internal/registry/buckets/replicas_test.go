package buckets

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
	for name, c := range map[string]struct {
		chosen int
		server placed
		want   int // 0 for no bucket
	}{
		"three servers":                       {server: placed{most: 3}, want: 3},
		"one server":                          {server: placed{most: 1, refusal: ErrOneServer}, want: 1},
		"a cluster of two":                    {server: placed{most: 2, refusal: none}},
		"one server, three are asked for":     {chosen: 3, server: placed{most: 1, refusal: ErrOneServer}},
		"a cluster of two, two are asked for": {chosen: 2, server: placed{most: 2, refusal: none}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(&c.server, Config{Name: "b", Replicas: c.chosen, Fleeting: true})
			err := b.Open(t.Context())
			if single := errors.Is(c.server.refusal, ErrOneServer); c.server.async != (single && c.want == 1) {
				t.Errorf("async is %v: a cluster could not give the bucket more replicas", c.server.async)
			}
			made := 0 // no bucket
			if len(c.server.made) > 0 {
				made = c.server.made[0]
			}
			if made != c.want || len(c.server.made) > 1 || (err == nil) != (c.want > 0) {
				t.Errorf("made with %d replicas, %v, want %d", c.server.made, err, c.want)
			}
		})
	}
}
