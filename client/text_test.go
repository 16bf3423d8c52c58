package client_test

import (
	"errors"
	"strings"
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

func TestMaskedTextsNeedTheKey(t *testing.T) {
	key, err := format.NewKey("k1")
	if err != nil {
		t.Fatal(err)
	}
	with := client.New(natsid().Conn, client.FormatOptions(format.Keys(key)))
	defer with.Close()
	without := client.New(natsid().Conn)
	defer without.Close()
	ctx, masked := t.Context(), "SO-{mask:k1:9}-{check}"
	if err := with.EnsureTag(ctx, subjects.TagCreate{Tag: "masked", Start: 42, Format: masked}); err != nil {
		t.Fatal(err)
	}
	want, _ := format.Parse(masked, format.Keys(key))
	order := with.Segment("masked")
	text, err := order.NextText(ctx)
	if first, _ := want.Format(42); text != first || err != nil {
		t.Errorf("%q, %v, want %q", text, err, first)
	}
	if f, err := order.Format(ctx); err != nil {
		t.Error(err)
	} else if id, err := f.Read(text); id != 42 || err != nil {
		t.Errorf("%q is %d, %v", text, id, err)
	}
	if text, err := without.Segment("masked").NextText(ctx); text != "" || !errors.Is(err, format.ErrNoKey) ||
		!strings.Contains(err.Error(), "k1") {
		t.Errorf("without the key: %q, %v", text, err)
	}
	if _, err := without.Segment("masked").Format(ctx); !errors.Is(err, format.ErrNoKey) {
		t.Error(err)
	}
}
