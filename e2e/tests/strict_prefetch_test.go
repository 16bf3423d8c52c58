package tests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
)

func TestAStrictTagIsNotFetchedAhead(t *testing.T) {
	t.Parallel()
	c := e2e.Start(t)
	strictly(t, c, "invoice")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := c.Client.Segment("invoice", client.Prefetch(10, time.Minute)).Next(ctx)
	if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "strict") {
		t.Errorf("%v, want a refusal that says why", err)
	}
	if id, err := c.Client.Segment("invoice").Next(ctx); err != nil || id < 1 {
		t.Errorf("%v, %v, want an ID of a request that is not for later", id, err)
	}
}
