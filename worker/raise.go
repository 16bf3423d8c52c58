package worker

import (
	"context"
	"math"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// raise raises a page of tags, and ends with what was done by half the deadline:
// the next request continues. After the last tag it says so to [Config.Raised].
//
// Law: no load of a tag that was raised by n begins below its former mark + n, be
// it deleted and created again later.
func (a *tagAdmin) raise(ctx context.Context, body []byte) (any, error) {
	r, err := subjects.ParseTagRaise(body)
	if err != nil {
		return nil, err
	}
	tags, err := a.cfg.Store.List(ctx, r.After, subjects.MaxRaised)
	if err != nil {
		return nil, ofStore(err)
	}
	page, began := newPage(a.cfg.Conn), time.Now()
	for _, t := range tags {
		longest := t // of what is said of it once it is raised
		longest.MaxID, longest.Description = math.MaxInt64, ""
		if time.Since(began) >= a.cfg.Deadline/2 || sizeOf(tagInfo(longest)) > page.room && len(page.infos) > 0 {
			break
		}
		info, err := a.raiseOne(ctx, t, int64(r.By))
		if err != nil {
			return nil, err
		}
		if !page.add(info) {
			info.Description = ""
			page.add(info)
		}
	}
	if len(tags) == 0 && a.cfg.Raised != nil {
		err = a.cfg.Raised(ctx, int64(r.By))
	}
	return subjects.TagRaised{Tags: page.infos}, ofStore(err)
}

// raiseOne raises a tag. One whose name no request can have is left as it is.
func (a *tagAdmin) raiseOne(ctx context.Context, t segment.Tag, by int64) (subjects.TagInfo, error) {
	if subjects.CheckTag(t.Name) != nil {
		return tagInfo(t), nil
	}
	lifter, ok := a.cfg.Store.(segment.Lifter)
	if !ok {
		return subjects.TagInfo{}, subjects.Errorf(subjects.Internal, "the store cannot raise all tags")
	}
	err := lifter.Lift(ctx, t.Name, segment.Floor{End: t.MaxID + min(by, math.MaxInt64-t.MaxID)})
	raised := t
	if err == nil {
		raised, err = a.cfg.Store.Look(ctx, t.Name)
	}
	if err != nil {
		a.cfg.Log.Error("a tag could not be raised", "tag", t.Name, "error", err)
		return subjects.TagInfo{}, subjects.Errorf(subjects.Unavailable,
			"tag %s could not be raised, and those after it were not; see the log of the worker, and retry", t.Name)
	}
	a.cfg.Segments.See(raised)
	a.announce(t.Name)
	return tagInfo(raised), nil
}
