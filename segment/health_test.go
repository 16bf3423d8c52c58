package segment

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// usedUp is a store whose tags have no IDs left.
type usedUp struct{ Store }

func (usedUp) Load(context.Context, string, int64, int64) (Loaded, error) {
	return Loaded{}, ErrExhausted
}

func TestRepeatedRequestsForAnExhaustedTagDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := New(Config{Store: usedUp{}, Deadline: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ask := func() {
			if _, err := a.Take(t.Context(), "order", 1); !errors.Is(err, ErrExhausted) {
				t.Fatalf("%v, want ErrExhausted", err)
			}
		}
		for range 1000 {
			ask()
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "a load failed"); n != failureLines {
			t.Errorf("%d lines, want %d", n, failureLines)
		}
		log.Reset()
		time.Sleep(time.Second)
		ask()
		synctest.Wait()
		if !strings.Contains(log.String(), "silent=980") {
			t.Errorf("%q, want the count of the 980 before", log.String())
		}
		a.Close()
	})
}
