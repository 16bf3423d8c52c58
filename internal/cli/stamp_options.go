package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func (c *stampRunCmd) check() error {
	for flag, pattern := range map[string]string{"subject": c.Subject, "into": c.Into} {
		prefix, ok := strings.CutSuffix(pattern, ">")
		if !ok || strings.ContainsAny(prefix, "*> \t\r\n") || prefix != "" && !strings.HasSuffix(prefix, ".") {
			return fmt.Errorf("--%s %q: want a subject that ends with >, without other wildcards", flag, pattern)
		}
	}
	if err := c.pipeline.check(); err != nil {
		return err
	}
	switch {
	case c.Tag == "" && !c.Snowflake:
		return errors.New("want either --tag or --snowflake")
	case c.DeadLetter != "" && (!isPattern(c.DeadLetter) || strings.ContainsAny(c.DeadLetter, "*>")):
		return fmt.Errorf("--dead-letter %q: want a subject without wildcards", c.DeadLetter)
	case c.Existing == stage.BuryID && c.DeadLetter == "":
		return errors.New("--existing=dead-letter: want --dead-letter, the subject of dead letters")
	}
	return nil
}

func (p *pipeline) check() error {
	if p.From == p.To {
		return fmt.Errorf("--to %s is --from: copy to another stream", p.To)
	}
	for i, f := range p.Filter {
		if !isPattern(f) {
			return fmt.Errorf("--filter %q: want a subject, such as orders.*.paid or orders.>", f)
		}
		for _, other := range p.Filter[:i] {
			if stage.Overlap(f, other) {
				return fmt.Errorf("--filter %q and --filter %q match some subjects both: leave one out", other, f)
			}
		}
	}
	return nil
}

// isPattern reports whether a text is a valid subject of NATS, with or without wildcards.
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

// A since is a time in the past, given as such or as a duration before now.
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

// mapped returns the subject under --into for the copy of a message with the given subject; "" if that subject does
// not match --subject.
func (c *stampRunCmd) mapped(subject string) string {
	rest, ok := strings.CutPrefix(subject, strings.TrimSuffix(c.Subject, ">"))
	if !ok {
		return ""
	}
	return strings.TrimSuffix(c.Into, ">") + rest
}
