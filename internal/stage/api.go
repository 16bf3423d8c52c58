package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// apiSubject returns the subject of a request to JetStream about a stream, or a consumer of one.
func apiSubject(js jetstream.JetStream, request, name string) string {
	opts := js.Options()
	return buckets.APIOf(opts.Domain, opts.APIPrefix).Stream(request, name)
}

// request sends a request to JetStream's API, and waits at most answersWithin for the answer.
func request(ctx context.Context, js jetstream.JetStream, subject string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	m, err := js.Conn().RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, fmt.Errorf("JetStream does not answer on %s: %w", subject, err)
	}
	return m.Data, nil
}

// infoOf returns the state of a stream, as its leader has it. While there is no leader any replica answers, even one
// that lacks the latest messages; only the answer of a leader that has them all contains LeaderSince.
func infoOf(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("JetStream does not answer; enable it, or check --js-domain and --js-prefix: %w", err)
	}
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if c := info.Cluster; c != nil && c.RaftGroup != "" && c.LeaderSince == nil {
		return nil, errors.New("it has no leader")
	}
	return info, nil
}

var errNoMessage = errors.New("stage: no such message")

// messageOf returns the message of a stream that a query selects, or errNoMessage. The stream's leader answers; a
// direct get would ask any replica.
func messageOf(ctx context.Context, js jetstream.JetStream, stream, query string) (m Message, err error) {
	reply, err := request(ctx, js, apiSubject(js, "STREAM.MSG.GET", stream), []byte(query))
	if err != nil {
		return m, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq    uint64    `json:"seq"`
			Time   time.Time `json:"time"`
			Header []byte    `json:"hdrs"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(reply, &got); {
	case err != nil:
		return m, fmt.Errorf("stream %s: %w", stream, err)
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return m, errNoMessage
	case got.Error != nil:
		return m, fmt.Errorf("stream %s: %w", stream, got.Error)
	}
	m.Seq, m.Time = got.Message.Seq, got.Message.Time
	if len(got.Message.Header) > 0 {
		m.Header, err = nats.DecodeHeadersMsg(got.Message.Header)
	}
	return m, err
}
