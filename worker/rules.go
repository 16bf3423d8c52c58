package worker

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/format"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// rulesOf returns the rules of a tag that is to be created. The error is an [*subjects.Error] or a [segment.RuleError].
func rulesOf(c subjects.TagCreate) (segment.Rules, error) {
	r := segment.Rules{
		Min: int64(c.Min), Max: int64(c.Max), MaxHole: int64(c.MaxHole), Period: segment.Period(c.Period), Zone: c.Zone,
	}
	if err := setFormat(&r, c.Format); err != nil {
		return r, err
	}
	return r, r.Validate()
}

// changedRules returns the rules of a tag after a request to change them.
func changedRules(r segment.Rules, u subjects.TagUpdate) (segment.Rules, error) {
	if u.Max != nil {
		r.Max = int64(*u.Max)
	}
	if u.MaxHole != nil {
		r.MaxHole = int64(*u.MaxHole)
	}
	if u.Format == nil {
		return r, nil
	}
	if !u.Force {
		if err := checkDiffers(r.Format, *u.Format); err != nil {
			return r, err
		}
	}
	return r, setFormat(&r, *u.Format)
}

// setFormat sets the format of the IDs, "" for none, and the bound that follows from it.
func setFormat(r *segment.Rules, text string) error {
	r.Format, r.FormatMax = text, 0
	if text == "" {
		return nil
	}
	f, err := format.Parse(text)
	if err != nil {
		return subjects.Errorf(subjects.BadRequest, "the format cannot be used: %s",
			strings.Trim(strconv.QuoteToASCII(err.Error()), `"`))
	}
	if period := f.Period().String(); period != string(r.Period) {
		return subjects.Errorf(subjects.BadRequest, "the date in the format is that of %s, and the tag is %s: "+
			"a tag with a period needs a {date:...} of exactly its period, and others have none",
			numbersOf(period), numbersOf(string(r.Period)))
	}
	if most := f.Max(); most < segment.MaxID {
		r.FormatMax = most
	}
	return nil
}

func numbersOf(period string) string {
	if period == "" {
		return "a tag without a period"
	}
	return "a " + period + " tag"
}

// checkDiffers returns an error if a text of the old format is one of another ID in the new one.
func checkDiffers(old, now string) error {
	if old == "" || now == "" {
		return nil
	}
	was, err := format.Parse(old)
	if err != nil {
		return nil // a later version wrote it
	}
	is, err := format.Parse(now)
	if err != nil {
		return nil // setFormat says why
	}
	text, differs := format.Differ(was, is)
	if !differs {
		return nil
	}
	example := text + " is a text of both"
	if id, err := was.Read(text); err == nil {
		if other, err := is.Read(text); err == nil {
			example = fmt.Sprintf("%s is ID %d, and would be %d", text, id, other)
		}
	}
	return subjects.Errorf(subjects.BadRequest, "the new format reads texts of the old one as other IDs: %s; "+
		"change a literal, or, if no text of the old format is in use, update the tag with force", example)
}

// formats answers a request for the format of a tag. Callers keep the answer.
func (a *tagAdmin) formats(r request, m *nats.Msg) {
	tag := a.link.Namespace.Formatted(m.Subject)
	a.handler(func(ctx context.Context, _ []byte) (any, error) { return a.format(ctx, tag) })(r, m)
}

func (a *tagAdmin) format(ctx context.Context, tag string) (any, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return nil, err
	}
	text, err := a.link.formatOf(ctx, tag)
	if err != nil {
		return nil, err
	}
	return subjects.TagFormat{Tag: tag, Format: text, Revision: subjects.FormatRevision(text)}, nil
}

// formatOf returns the format of a tag, which it has.
func (c *Config) formatOf(ctx context.Context, tag string) (string, error) {
	t, err := c.Store.Look(ctx, tag)
	if err == nil && t.Disabled {
		err = segment.ErrDisabled
	}
	if err != nil {
		return "", ofStore(err)
	}
	if t.Rules.Format == "" {
		return "", subjects.Errorf(subjects.BadRequest,
			"the tag has no format: give it one with `natsid tag update %s --format 'SO-{id:6}-{check}'`", tag)
	}
	return t.Rules.Format, nil
}
