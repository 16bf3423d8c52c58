package stage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Member is a stage that copies, or stands by. Each has a consumer on its source, which says so.
type Member struct {
	Name   string // for people
	Target string
	Role   Role
}

// metadata returns the metadata of the member's consumer.
func (m Member) metadata(role Role) map[string]string {
	return map[string]string{"natsid_stage": m.Name, "natsid_target": m.Target, "natsid_role": string(role)}
}

// standbyFor is how long a member is known to stand by after it last said so.
const standbyFor = 5 * time.Second

// StandBy implements [Source]. The request keeps the consumer in being, and delivers nothing.
func (s *onSource) StandBy(ctx context.Context) error {
	_, err := request(ctx, s.js, "CONSUMER.MSG.NEXT."+s.name+"."+s.standby,
		[]byte(`{"batch":1,"max_bytes":1,"no_wait":true}`))
	if errors.Is(err, nats.ErrNoResponders) {
		_, err = s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
			Name: s.standby, AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverNewPolicy,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: standbyFor, Metadata: s.member.metadata(Standby),
		})
	}
	return err
}

// Members returns the stages that copy a stream to a target: the one that copies, and those that stand by. One that
// was killed is known for up to a minute.
func Members(ctx context.Context, js jetstream.JetStream, source, target string) (members []Member, err error) {
	stream, err := js.Stream(ctx, source)
	if err != nil {
		return nil, err
	}
	consumers := stream.ListConsumers(ctx)
	var copier jetstream.ConsumerInfo // of the stage that began to copy last
	for c := range consumers.Info() {
		data := c.Config.Metadata
		switch m := (Member{data["natsid_stage"], target, Role(data["natsid_role"])}); {
		case data["natsid_target"] != target:
		case m.Role == Standby:
			members = append(members, m)
		case c.Created.After(copier.Created):
			copier = *c
		}
	}
	if name := copier.Config.Metadata["natsid_stage"]; name != "" {
		members = slices.Insert(members, 0, Member{name, target, Copying})
	}
	return members, consumers.Err()
}

// Position returns the last message of the source that was copied or passed, and how many are behind it.
func (s *Stage) Position(ctx context.Context) (seq, behind uint64, err error) {
	at, err := s.locate(ctx)
	return at.from.Seq, at.end - min(at.end, at.from.Seq), err
}
