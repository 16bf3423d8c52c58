//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Operations of an operator on a stream, with the API of JetStream: like `nats stream backup`, restore, edit and rm.

// apiWaits is how long the trial waits for one answer of JetStream.
const apiWaits = 10 * time.Second

// A backup is the output of `nats stream backup`.
type backup struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
	chunks [][]byte
}

// An apiError is the part of an answer of JetStream that describes a failure.
type apiError struct {
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// api sends a request to JetStream and reads its answer into reply.
func (c *cluster) api(subject string, request, reply any) error {
	body, err := json.Marshal(request)
	c.must(err)
	m, err := c.conn().Request(subject, body, apiWaits)
	c.must(err)
	return answerOf(m, reply)
}

func answerOf(m *nats.Msg, reply any) error {
	var failed apiError
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("an answer of JetStream: %w", err)
	}
	if failed.Error != nil {
		return errors.New(failed.Error.Description)
	}
	return json.Unmarshal(m.Data, reply)
}

// backUp copies the stream of a bucket while no worker writes. The copy that nats-server 2.15 makes of a bucket under
// writes may lack keys: then the trial would lose tags, and its operator would have to create them again.
func (c *cluster) backUp(bucket string) *backup {
	for _, w := range c.workers {
		c.must(w.Signal(syscall.SIGSTOP))
		defer func() { c.must(w.Signal(syscall.SIGCONT)) }()
	}
	time.Sleep(50 * time.Millisecond) // for writes under way to arrive
	nc := c.conn()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	c.must(err)
	defer sub.Unsubscribe()
	b := &backup{}
	c.must(c.api("$JS.API.STREAM.SNAPSHOT.KV_"+bucket,
		map[string]any{"deliver_subject": sub.Subject, "no_consumers": true}, b))
	for {
		m, err := sub.NextMsg(apiWaits)
		c.must(err)
		if len(m.Data) == 0 {
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply != "" { // JetStream waits for some answers before it sends more
			c.must(m.Respond(nil))
		}
	}
}

// restore deletes the stream of a bucket and restores it from the copy. If a worker has created the bucket in
// between, JetStream refuses the copy, and restore retries. It returns the number of refusals.
func (c *cluster) restore(bucket string, b *backup) (refused int) {
	var last error
	if c.wait(apiWaits, "", func() bool {
		c.deleteBucket(bucket)
		if last = c.upload(bucket, b); last != nil {
			refused++
			c.logf("the copy is refused: %v", last)
		}
		return last == nil
	}) != nil {
		c.Fatalf("%s cannot be restored: %v", bucket, last)
	}
	return refused
}

func (c *cluster) upload(bucket string, b *backup) error {
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	if err := c.api("$JS.API.STREAM.RESTORE.KV_"+bucket, b, &to); err != nil {
		return err
	}
	for _, chunk := range append(b.chunks, nil) { // an empty chunk ends the copy
		m, err := c.conn().Request(to.Subject, chunk, apiWaits)
		if err != nil {
			return err
		}
		if len(m.Data) > 0 {
			if err := answerOf(m, &struct{}{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// js returns JetStream for an operator, who is connected to the first server.
func (c *cluster) js() jetstream.JetStream {
	js, err := jetstream.New(c.conn())
	c.must(err)
	return js
}

// within returns a context for one call.
func (c *cluster) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, apiWaits)
}

func (c *cluster) deleteBucket(bucket string) {
	ctx, cancel := c.within()
	defer cancel()
	c.must(c.js().DeleteStream(ctx, "KV_"+bucket))
}

// edit changes the configuration of a bucket's stream. JetStream may refuse that.
func (c *cluster) edit(bucket string, change func(*jetstream.StreamConfig)) error {
	ctx, cancel := c.within()
	defer cancel()
	js := c.js()
	s, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	change(&config)
	_, err = js.UpdateStream(ctx, config)
	return err
}

// copyStore copies the store of a server on disk, while the server stands still.
func (c *cluster) copyStore(v *server) (dir string) {
	dir = c.path(v.name + ".copy")
	c.must(v.Signal(syscall.SIGSTOP))
	c.must(os.CopyFS(dir, os.DirFS(v.data)))
	c.must(v.Signal(syscall.SIGCONT))
	return dir
}

// replaceStore gives a server that does not run the store of a copy.
func (c *cluster) replaceStore(v *server, dir string) {
	c.must(os.RemoveAll(v.data))
	c.must(os.CopyFS(v.data, os.DirFS(dir)))
}
