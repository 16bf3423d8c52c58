package client_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

func TestATagIsEnsuredUnlessOneWithOtherSettingsExists(t *testing.T) {
	c := client.Must(client.New(natsid().Conn, client.Config{}))
	defer c.Close()
	ctx := t.Context()
	want := subjects.TagCreate{Tag: "ensured", Step: 50, Start: 1000, Description: "seats"}
	for range 2 {
		if err := c.EnsureTag(ctx, want); err != nil {
			t.Error(err)
		}
	}
	if id, err := client.Must(c.Segment("ensured", client.SegmentConfig{})).Next(ctx); id != 1000 || err != nil {
		t.Errorf("%d, %v, want ID 1000", id, err)
	}
	for differs, change := range map[string]func(*subjects.TagCreate){
		"":                               func(t *subjects.TagCreate) { *t = subjects.TagCreate{Tag: t.Tag} },
		"step 50, want 60":               func(t *subjects.TagCreate) { t.Step = 60 },
		"want at least 5000":             func(t *subjects.TagCreate) { t.Start = 5000 },
		`description "seats", want "no"`: func(t *subjects.TagCreate) { t.Description = "no" },
		"is loose, want strict":          func(t *subjects.TagCreate) { t.Strict = true },
	} {
		other := want
		change(&other)
		err := c.EnsureTag(ctx, other)
		if differs == "" {
			if err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, client.ErrTagExists) || !strings.Contains(err.Error(), differs) {
			t.Errorf("%v, want ErrTagExists with %q", err, differs)
		}
	}
	if _, err := c.CreateTag(ctx, want); !errors.Is(err, client.ErrTagExists) {
		t.Errorf("%v, want ErrTagExists", err)
	}
	deleted := wire.TagDelete{Tag: "ensured"}
	if _, err := natstest.Ask[any](ctx, natsid().Conn, subjects.DefaultNamespace.TagDelete(), deleted); err != nil {
		t.Error(err)
	}
	want.Step, want.Start = 60, 0
	if err := c.EnsureTag(ctx, want); err != nil {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestProgramsMayEnsureOneTagAtTheSameTime(t *testing.T) {
	c := client.Must(client.New(natsid().Conn, client.Config{}))
	defer c.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.EnsureTag(t.Context(), subjects.TagCreate{Tag: "together", Step: 7}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
