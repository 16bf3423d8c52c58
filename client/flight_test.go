package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A pause that a reply demands holds nothing for longer than half a minute.
func TestAPauseOfDaysEndsWithTheCallsThatWait(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), order(client.Must(client.New(nc, client.Config{})), client.SegmentConfig{})
	d.say(func(_, _ int, m *nats.Msg) bool {
		refuseWith(t, m, subjects.TooMany, subjects.HeaderRetryAfter, "2147483647")
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := h.Next(ctx); !errors.Is(err, client.ErrThrottled) {
		t.Error(err)
	}
	wait.Until(t, "its request has ended", func() bool { return h.Stats().Failures == 1 })
}

// A call that meets silence was not refused: the refusal was that of an earlier call, or of an earlier copy.
func TestSilenceIsNotExplainedByAnEarlierRefusal(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	for _, tc := range []struct {
		law             string
		h               *client.Handle
		refused, copies int // of the copies, how many are refused, the first of them; the call ends with the last one
		want            bool
	}{
		{"the retry may be answered yet", h, 1, 2, true},
		{"the refusal was of another call", h, 0, 1, false},
		{"the retry is not answered", order(patient(nc), client.SegmentConfig{}), 1, 3, false},
	} {
		ends := func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := len(d.requests())
			d.say(func(number, _ int, m *nats.Msg) bool {
				if number -= before; number == tc.copies {
					cancel()
				}
				if number > tc.refused {
					return false
				}
				refuseWith(t, m, subjects.Unavailable, "X-None", "")
				return true
			})
			_, err := tc.h.Next(ctx)
			return err
		}
		err := ends()
		for try := 0; try < 4 && errors.Is(err, client.ErrUnavailable) != tc.want; try++ { // it stalled for 0.1 s
			err = ends()
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable) != tc.want {
			t.Errorf("%s: %v", tc.law, err)
		}
	}
}

func TestALostConnectionIsTheReason(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	hurried := client.Must(client.New(nc, client.Config{Timeout: 50 * time.Millisecond}))
	_, err = order(hurried, client.SegmentConfig{}).Next(t.Context())
	if !errors.Is(err, nats.ErrDisconnected) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Workers refuse by 1.5 s, and a call has 5 s.
func TestALargeRequestIsCopiedAsASmallOneOnceAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	const lost = 10 // copies that reach workers that hang
	d.say(func(number, _ int, m *nats.Msg) bool {
		if number > lost {
			d.issue(m)
		}
		return number > lost
	})
	begin := time.Now()
	runs, err := h.NextN(t.Context(), 10_001)
	if took := time.Since(begin); err != nil || runs.Len() != 10_001 || took > lost*3*time.Second/2+slack {
		t.Errorf("%d IDs, %v after %v", runs.Len(), err, took)
	}
}

func TestConnectionsOfEachKindServe(t *testing.T) {
	url := natstest.Start(t)
	openDesk(t, natstest.Connect(t, url))
	t.Run("with a prefix of its own for replies", func(t *testing.T) {
		nc := natstest.Connect(t, url, nats.CustomInboxPrefix("_INBOX_shop.a"))
		if _, err := order(patient(nc), client.SegmentConfig{}).Next(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("connected later", func(t *testing.T) {
		cfg := natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()}
		srv, err := natsembed.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		url := srv.ClientURL()
		cfg.Listen = strings.TrimPrefix(url, "nats://")
		srv.Shutdown()
		srv.WaitForShutdown()
		nc := natstest.Connect(t, url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
			nats.ReconnectWait(10*time.Millisecond))
		call := start(t.Context(), order(patient(nc), client.SegmentConfig{}), 1)
		if srv, err = natsembed.Start(cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.WaitForShutdown)
		t.Cleanup(srv.Shutdown)
		openDesk(t, natstest.Connect(t, url))
		collect(t, call, 1)
	})
}
