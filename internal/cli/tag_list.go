package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

type tagListCmd struct {
	Tags []string `arg:"" optional:"" name:"tag"`
}

func (*tagListCmd) help() help {
	return help{
		summary: "List the tags.",
		detail: `NEXT ID is the first ID that no worker has loaded. LIMITS are the tag's period and
bounds; the limits of "natsid tag update", in IDs a request and IDs per second of
all workers together; and what "natsid throttle" sets. A tag whose IDs rise over
all workers is strict.

With --json the marks in JetStream are part of the list, also without a worker.

Examples:
  natsid tag list
  natsid tag list order 'so-*'`,
		values: map[string]string{"tag": "The tags to list, or patterns, such as 'so-*'; all if absent."},
	}
}

func (c *tagListCmd) Run(s *session) error {
	return s.withJetStream(func(_ context.Context, js jetstream.JetStream) error {
		all, err := s.allTags(s.ctx, js.Conn())
		if s.json {
			all, err = s.withMarks(js, all, err)
		}
		if err == nil && len(c.Tags) > 0 {
			all, err = matching(all, c.Tags...)
		}
		if err != nil {
			return err
		}
		return s.print(all, func(out *sheet) { printTags(out, all) })
	})
}

// matching returns the tags whose names match at least one pattern. If no tag does, it returns an error.
func matching(all []subjects.TagInfo, patterns ...string) ([]subjects.TagInfo, error) {
	all = slices.DeleteFunc(all, func(t subjects.TagInfo) bool {
		return !slices.ContainsFunc(patterns, func(pattern string) bool {
			matches, _ := path.Match(pattern, t.Tag) // a malformed pattern matches no tag
			return matches
		})
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("no tag matches %s: check the name or pattern", strings.Join(patterns, ", "))
	}
	return all, nil
}

func printTags(out *sheet, all []subjects.TagInfo) {
	out.head("TAG\tNEXT ID\tSTEP\tUPDATED\tLIMITS\tDESCRIPTION")
	for _, t := range all {
		description := t.Description
		if t.Unservable != "" {
			description = "(cannot be served: " + t.Unservable + ") " + description
		}
		if t.Disabled {
			description = "(deleted) " + description
		}
		out.row(t.Tag, t.NextID, t.Step, t.Updated, fleetview.Limits(t), description)
	}
}

// changeTags calls do with the tag named by pattern, or with each tag that matches it, if a person agrees.
func (s *session) changeTags(c consent, pattern, verb string, do func(nc *nats.Conn, tag string) error) error {
	return s.withNATS(func(nc *nats.Conn) error {
		if c.Yes && !c.DryRun && !strings.ContainsAny(pattern, "*?") {
			return do(nc, pattern)
		}
		all, err := s.allTags(s.ctx, nc)
		if err == nil {
			all = slices.DeleteFunc(all, func(t subjects.TagInfo) bool { return t.Disabled })
			all, err = matching(all, pattern)
		}
		if err != nil {
			return err
		}
		question := fmt.Sprintf("%s %s?", verb, numberOf(len(all), "tag"))
		return s.change(c, question, all, func(out *sheet) { printTags(out, all) }, func() error {
			for i := 0; i < len(all) && err == nil; i++ {
				err = do(nc, all[i].Tag)
			}
			return err
		})
	})
}

// tell asks a worker to change a tag, and prints the changed tag.
func (s *session) tell(nc *nats.Conn, subject string, change any) error {
	t, err := request[subjects.TagInfo](s, nc, subject, change)
	if err != nil {
		return err
	}
	return s.print(t, func(out *sheet) {
		next := fmt.Sprintf("next ID %d, ", max(t.NextID, t.Min))
		if t.Period != "" {
			next = "" // the next ID of such a tag depends on the date
		}
		if t.Disabled {
			next = "deleted, " + next
		}
		out.line("%s: %sstep %d, limits %s", t.Tag, next, t.Step, cmp.Or(fleetview.Limits(t), "off"))
	})
}

// allTags returns all tags that a worker lists, page by page.
func (s *session) allTags(ctx context.Context, nc *nats.Conn) ([]subjects.TagInfo, error) {
	cl, err := s.client(nc, client.Config{})
	if err != nil {
		return nil, err
	}
	all := []subjects.TagInfo{}
	for after := ""; ; after = all[len(all)-1].Tag {
		page, err := cl.ListTags(ctx, subjects.TagList{After: after})
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

// withMarks adds to the tags in all what the bucket of marks knows; a tag's mark is its next ID in the bucket.
// failed is why no worker listed all tags, nil if one did. It is returned if the bucket cannot be read either.
//
// Law: no NextID is below the tag's mark, and no tag with a mark is missing. So rows of MySQL that are made from the
// list repeat no ID.
func (s *session) withMarks(
	js jetstream.JetStream, all []subjects.TagInfo, failed error,
) ([]subjects.TagInfo, error) {
	ctx, cancel := s.soon()
	defer cancel()
	r, err := s.inspect(ctx, js)
	if err != nil {
		return nil, cmp.Or(failed, err)
	}
	for i, t := range all {
		all[i].NextID = max(t.NextID, subjects.ID(r.Marks[t.Tag].Mark))
		delete(r.Marks, t.Tag)
	}
	for tag, p := range r.Marks {
		if p.Unmade {
			continue
		}
		t := subjects.TagInfo{Tag: tag, NextID: subjects.ID(p.Mark), Updated: p.Written, Disabled: p.Disabled}
		if p.Undecided {
			t.Unservable = wire.Undecided
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b subjects.TagInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return all, nil
}
