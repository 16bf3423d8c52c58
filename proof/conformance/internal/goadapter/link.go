package goadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// A link is a connection with its client.
type link struct {
	nc     *nats.Conn
	client *client.Client
}

// errNotConnected is returned for a call before the first connect.
var errNotConnected = fmt.Errorf("%w: connect first", client.ErrClosed)

func (a *adapter) connect(raw json.RawMessage) (any, error) {
	var p struct {
		Servers   []string
		Namespace subjects.Namespace
		TimeoutMs int64
		FailFast  bool
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	if a.link != nil {
		a.link.nc.Close()
	}
	nc, err := nats.Connect(strings.Join(p.Servers, ","), nats.MaxReconnects(-1), nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(1), nats.ReconnectWait(50*time.Millisecond), nats.Timeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	cfg := client.Config{
		Namespace: p.Namespace, Timeout: time.Duration(p.TimeoutMs) * time.Millisecond, FailFast: p.FailFast,
	}
	c, err := client.New(nc, cfg)
	a.link = &link{nc: nc, client: c}
	return struct{}{}, err
}

func (a *adapter) disconnect(raw json.RawMessage) (any, error) {
	var p struct{ Drain bool }
	err := json.Unmarshal(raw, &p)
	switch {
	case err != nil || a.link == nil:
		return struct{}{}, err
	case p.Drain:
		return struct{}{}, a.link.nc.Drain()
	}
	a.link.nc.Close()
	return struct{}{}, nil
}

func (a *adapter) close(json.RawMessage) (any, error) {
	if a.link != nil {
		a.link.client.Close()
	}
	return struct{}{}, nil
}

// handle returns the handle of a target.
func (a *adapter) handle(target json.RawMessage) (*client.Handle, error) {
	if a.link == nil {
		return nil, errNotConnected
	}
	var t struct {
		Tag       string
		Snowflake bool
		Business  int64
		MaxBatch  int
		Prefetch  struct {
			N        int
			MaxAgeMs int64
		}
	}
	if err := json.Unmarshal(target, &t); err != nil {
		return nil, err
	}
	n, age := t.Prefetch.N, time.Duration(t.Prefetch.MaxAgeMs)*time.Millisecond
	if t.Snowflake {
		return a.link.client.Snowflake(client.SnowflakeConfig{Business: t.Business, Prefetch: n, MaxAge: age})
	}
	return a.link.client.Segment(t.Tag, client.SegmentConfig{Prefetch: n, MaxAge: age, MaxBatch: t.MaxBatch})
}

// kinds are the sentinels of package client, by kind.
var kinds = []struct {
	kind string
	err  error
}{
	{"NotServed", client.ErrNotServed}, {"Unavailable", client.ErrUnavailable}, {"Throttled", client.ErrThrottled},
	{"BadRequest", client.ErrBadRequest}, {"UnknownTag", client.ErrUnknownTag}, {"NotNatsid", client.ErrNotNatsid},
	{"Busy", client.ErrBusy}, {"Closed", client.ErrClosed}, {"UsedUp", client.ErrUsedUp},
}

// Kind returns the kind of an error in the contract, and for one of a context the kind of its reason, if it has one.
func Kind(err error) (kind, reason string) {
	kind = sentinel(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "Deadline", kind
	case errors.Is(err, context.Canceled):
		return "Canceled", kind
	case kind != "":
		return kind, ""
	}
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		if e.Code == subjects.BadRequest {
			return "BadRequest", ""
		}
		return "Refused", ""
	}
	return "Other", ""
}

// Final returns the kind of the reason why a call has no ID, and whether the client has asked again until the end.
func Final(err error) (kind string, again bool) {
	kind, reason := Kind(err)
	if kind == "Deadline" {
		return reason, true
	}
	return kind, false
}

func sentinel(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return ""
}
