package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/stamp"
)

func (c *stampCmd) check() error {
	ways := 0
	for _, given := range []bool{c.Tag != "", c.Snowflake, c.TagFrom.tag != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 && !c.Repair && !c.Status {
		return errors.New("want one of --tag, --tag-from and --snowflake")
	}
	for flag, pattern := range map[string]string{"subject": c.Subject, "into": c.Into, "core": cmp.Or(c.Core, ">")} {
		prefix, ok := strings.CutSuffix(pattern, ">")
		if !ok || strings.ContainsAny(prefix, "*> \t\r\n") || prefix != "" && !strings.HasSuffix(prefix, ".") {
			return fmt.Errorf("--%s %q: want a subject that ends with >, without other wildcards", flag, pattern)
		}
	}
	if c.Core != "" {
		return c.checkCore()
	}
	if c.From == "" || c.To == "" {
		return errors.New("want --from and --to, the streams; or --core")
	}
	for i, f := range c.Filter {
		if !isPattern(f) {
			return fmt.Errorf("--filter %q: want a subject, such as orders.*.paid or orders.>", f)
		}
		for _, other := range c.Filter[:i] {
			if stage.Overlap(f, other) {
				return fmt.Errorf("--filter %q and --filter %q match some subjects both: leave one out", other, f)
			}
		}
	}
	switch {
	case c.From == c.To:
		return fmt.Errorf("--to %s is --from: copy to another stream", c.To)
	case c.DeadLetter != "" && (!isPattern(c.DeadLetter) || strings.ContainsAny(c.DeadLetter, "*>")):
		return fmt.Errorf("--dead-letter %q: want a subject without wildcards", c.DeadLetter)
	case c.Existing == stage.BuryID && c.DeadLetter == "":
		return errors.New("--existing=dead-letter: want --dead-letter, the subject of dead letters")
	}
	return nil
}

// isPattern reports whether a text is a subject of NATS, with wildcards or without.
func isPattern(text string) bool {
	tokens := strings.Split(text, ".")
	for i, t := range tokens {
		wild := strings.ContainsAny(t, "*>")
		if t == "" || strings.ContainsAny(t, " \t\r\n") || wild && t != "*" && (t != ">" || i < len(tokens)-1) {
			return false
		}
	}
	return true
}

// stamp returns the function that gives messages IDs.
func (c *stampCmd) stamp(ids *client.Client) func(context.Context, string, []*nats.Msg) error {
	if c.TagFrom.tag != nil {
		return func(ctx context.Context, tag string, msgs []*nats.Msg) error {
			return stamp.New(ids.Segment(tag)).Msgs(ctx, msgs)
		}
	}
	handle := ids.Snowflake()
	if c.Tag != "" {
		handle = ids.Segment(string(c.Tag))
	}
	one := stamp.New(handle)
	return func(ctx context.Context, _ string, msgs []*nats.Msg) error { return one.Msgs(ctx, msgs) }
}

// A tagFrom is the place of the tag in a message.
type tagFrom struct {
	tag func(*stage.Message) (string, error) // nil: no place was given
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *tagFrom) UnmarshalText(text []byte) error {
	kind, what, _ := strings.Cut(string(text), ":")
	token, err := strconv.Atoi(what)
	switch {
	case kind == "header" && what != "" && !strings.ContainsAny(what, ": \t\r\n"):
		f.tag = func(m *stage.Message) (string, error) {
			values := m.Header[what]
			if len(values) != 1 {
				return "", fmt.Errorf("it has %d headers %s, and its tag is in one", len(values), what)
			}
			return values[0], checkTag(values[0])
		}
	case kind == "subject" && err == nil && token > 0:
		f.tag = func(m *stage.Message) (string, error) {
			tokens := strings.Split(m.Subject, ".")
			if token > len(tokens) {
				return "", fmt.Errorf("%s has %d tokens, and its tag is number %d", m.Subject, len(tokens), token)
			}
			return tokens[token-1], checkTag(tokens[token-1])
		}
	default:
		return fmt.Errorf("%q: want header:NAME, or subject:N with N from 1", text)
	}
	return nil
}

// A since is a time, given directly or as a duration before now.
type since struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *since) UnmarshalText(text []byte) error {
	if ago, err := time.ParseDuration(string(text)); err == nil && ago >= 0 {
		t.Time = time.Now().Add(-ago)
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil || at.After(time.Now()) {
		return fmt.Errorf("%q: want a time in the past, such as 2026-01-31T12:00:00Z, or a duration, such as 90m", text)
	}
	t.Time = at
	return nil
}

// mapped returns the subject of a copy; "" if the subject is not one of --subject.
func (c *stampCmd) mapped(subject string) string {
	rest, ok := strings.CutPrefix(subject, strings.TrimSuffix(c.Subject, ">"))
	if !ok {
		return ""
	}
	return strings.TrimSuffix(c.Into, ">") + rest
}
