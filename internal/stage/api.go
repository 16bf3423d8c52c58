package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// request sends a request to JetStream's API.
func request(ctx context.Context, js jetstream.JetStream, subject string, body []byte) ([]byte, error) {
	opts := js.Options()
	prefix := "$JS.API."
	switch {
	case opts.Domain != "":
		prefix = "$JS." + opts.Domain + ".API."
	case opts.APIPrefix != "":
		prefix = strings.TrimSuffix(opts.APIPrefix, ".") + "."
	}
	m, err := js.Conn().RequestWithContext(ctx, prefix+subject, body)
	if err != nil {
		return nil, fmt.Errorf("JetStream does not answer on %s: %w", prefix+subject, err)
	}
	return m.Data, nil
}

var errNoMessage = errors.New("stage: no such message")

// messageOf returns the message of a stream that a query selects, as the stream's leader has it (a direct get asks
// any replica), or errNoMessage.
func messageOf(ctx context.Context, js jetstream.JetStream, stream, query string) (m Message, err error) {
	reply, err := request(ctx, js, "STREAM.MSG.GET."+stream, []byte(query))
	if err != nil {
		return m, err
	}
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
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
	m.Seq = got.Message.Seq
	if len(got.Message.Header) > 0 {
		m.Header, err = nats.DecodeHeadersMsg(got.Message.Header)
	}
	return m, err
}
