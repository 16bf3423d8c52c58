package client_test

import (
	"errors"
	"testing"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/subjects"
)

func TestTextsAreInTheFormatOfTheTagAlsoAfterAChange(t *testing.T) {
	c := client.New(natsid().Conn)
	defer c.Close()
	ctx, order := t.Context(), c.Segment("texts")
	first := "SO-{id:6}-{check}"
	if err := c.EnsureTag(ctx, subjects.TagCreate{Tag: "texts", Start: 42, Format: first}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureTag(ctx, subjects.TagCreate{Tag: "texts", Format: "{id}"}); !errors.Is(err, client.ErrTagExists) {
		t.Errorf("another format: %v", err)
	}
	text, err := order.NextText(ctx)
	f, no := order.Format(ctx)
	if err != nil || no != nil || text[:10] != "SO-000042-" {
		t.Fatalf("%q, %v, %v", text, err, no)
	}
	if id, err := f.Read(text); id != 42 || err != nil {
		t.Errorf("%s reads as %d, %v", text, id, err)
	}
	second := "NO/{id}"
	if _, err := c.UpdateTag(ctx, subjects.TagUpdate{Tag: "texts", Format: &second}); err != nil {
		t.Fatal(err)
	}
	if text, err = order.NextText(ctx); text != "NO/43" || err != nil {
		t.Errorf("after the change: %q, %v", text, err)
	}
	held := c.Segment("texts", client.Prefetch(10, client.DefaultTimeout))
	if text, err = held.NextText(ctx); text != "NO/44" {
		t.Errorf("prefetched: %q, %v", text, err)
	}
}

func TestTextsThatCannotBeHadAreErrors(t *testing.T) {
	c := client.New(natsid().Conn)
	defer c.Close()
	ctx := t.Context()
	for _, h := range []*client.Handle{c.Segment("no-format"), c.Snowflake(), c.Segment("a b")} {
		if text, err := h.NextText(ctx); text != "" || !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%q, %v, want ErrBadRequest", text, err)
		}
	}
	if err := c.EnsureTag(ctx, subjects.TagCreate{Tag: "narrow", Start: 999, Format: "{id:3}0"}); err != nil {
		t.Fatal(err)
	}
	if text, err := c.Segment("narrow").NextText(ctx); text != "9990" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	loose := "{id:2}-"
	if _, err := c.UpdateTag(ctx, subjects.TagUpdate{Tag: "narrow", Format: &loose}); err != nil {
		t.Errorf("a format that grows: %v", err)
	}
	if _, err := format.Parse("{id}{id:3}"); err == nil {
		t.Error("an ambiguous format was read")
	}
}
