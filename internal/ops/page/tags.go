package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A tagRow is a tag in the list; Busy is set if it is among the busiest of some worker.
type tagRow struct {
	subjects.TagInfo
	Busy *fleetview.Use
}

// tagsView is a page of tags.
type tagsView struct {
	Query      string
	By         string // name, speed, or left: what the tags last for; the last two are of the busiest
	InTrouble  bool   // only tags of which loads fail, or requests wait
	Rows       []tagRow
	First      int // number of the first row, from 1
	Last       int
	Found, All int
	Prev, Next string // links; "" for none
	Marks      bool   // some row has a mark beside it
	At         time.Time
	Trouble    error // why the list is out of date
}

func (p *page) tagList(r *http.Request) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{Busiest: true})
	if err != nil {
		return nil, err
	}
	busy := make(map[string]*fleetview.Use)
	busiest := s.Busiest()
	v := tagsView{Query: strings.TrimSpace(r.FormValue("q")), By: "name", InTrouble: r.FormValue("in") == "trouble"}
	switch by := r.FormValue("by"); {
	case by == "left" || v.InTrouble:
		v.By = "left"
		slices.SortStableFunc(busiest, func(x, y fleetview.Use) int {
			return cmp.Compare(x.SecondsLeft, y.SecondsLeft)
		})
	case by == "speed":
		v.By = by
	}
	if v.InTrouble {
		busiest = slices.DeleteFunc(busiest, func(b fleetview.Use) bool { return !b.Failing && b.Waiting == 0 })
	}
	for i := range busiest {
		busy[busiest[i].Tag] = &busiest[i]
	}
	tags, at, trouble := p.tags.get(r.Context())
	v.All, v.At, v.Trouble = len(tags), at, trouble
	found := matching(tags, v.Query)
	if v.By != "name" {
		found = only(tags, busiest, v.Query)
	}
	v.Found = len(found)
	found, v.First, v.Prev, v.Next = paged(found, r, v.link)
	v.Last = v.First + len(found) - 1
	for _, t := range found {
		row := tagRow{p.cfg.Info(t), busy[t.Name]}
		v.Marks = v.Marks || row.MarkAhead != nil
		v.Rows = append(v.Rows, row)
	}
	return v, nil
}

// paged returns the rows of a list that are on the requested page, the place of the first row, counted from 1, and the
// links to the pages before and after; "" for none.
func paged[T any](all []T, r *http.Request, link func(number int) string) (rows []T, first int, prev, next string) {
	const size = 50
	number, _ := strconv.Atoi(r.FormValue("p"))
	number = max(0, min(number, (len(all)-1)/size))
	from, to := number*size, min(number*size+size, len(all))
	if number > 0 {
		prev = link(number - 1)
	}
	if to < len(all) {
		next = link(number + 1)
	}
	return all[from:to], from + 1, prev, next
}

// link returns the address of another page of the same list.
func (v tagsView) link(number int) string {
	q := url.Values{}
	if v.Query != "" {
		q.Set("q", v.Query)
	}
	if v.By != "name" {
		q.Set("by", v.By)
	}
	if v.InTrouble {
		q.Set("in", "trouble")
	}
	if number > 0 {
		q.Set("p", strconv.Itoa(number))
	}
	return "/tags?" + q.Encode()
}

// matching returns the tags whose names contain a text, whatever its case.
func matching(tags []segment.Tag, text string) (found []segment.Tag) {
	if text == "" {
		return tags
	}
	text = strings.ToLower(text)
	for _, t := range tags {
		if strings.Contains(strings.ToLower(t.Name), text) {
			found = append(found, t)
		}
	}
	return found
}

// only returns the tags that are among the busiest and match a text, in the order of the busiest.
func only(tags []segment.Tag, busiest []fleetview.Use, text string) (found []segment.Tag) {
	at := make(map[string]int, len(busiest))
	for i, b := range busiest {
		if b.IDsPerSecond > 0 || b.Failing || b.Waiting > 0 {
			at[b.Tag] = i
		}
	}
	order := make([]*segment.Tag, len(busiest))
	for i := range tags {
		if place, ok := at[tags[i].Name]; ok {
			order[place] = &tags[i]
		}
	}
	for _, t := range order {
		if t != nil {
			found = append(found, *t)
		}
	}
	return matching(found, text)
}

// A tagView is one tag, with the figures of each worker.
type tagView struct {
	Name    string
	Info    subjects.TagInfo
	Exists  bool
	Trouble error // why the tag could not be read
	Rows    []tagWorker
	Total   fleetview.Use
}

// A tagWorker is the figures of one worker for a tag.
type tagWorker struct {
	subjects.TagStats
	Answered bool
	Bars     []rangeBar
}

// A rangeBar is a range drawn to scale, from 0 to 100 with the worker's others.
type rangeBar struct {
	subjects.TagRange
	X, Used, Width float64
}

// maxName is the length limit of names, in bytes: rows of a table may have longer names than a subject can have.
const maxName = 1024

func (p *page) tag(r *http.Request) (any, error) {
	v := tagView{Name: r.FormValue("name")}
	if len(v.Name) > maxName {
		return v, nil
	}
	t, err := p.look(r.Context(), v.Name)
	switch {
	case err == nil:
		v.Exists, v.Info = true, p.cfg.Info(t)
	case !errors.Is(err, segment.ErrUnknownTag):
		v.Trouble = err
	}
	if !v.Exists && v.Trouble == nil {
		return v, nil
	}
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{Tag: v.Name})
	if err != nil {
		return nil, err
	}
	v.Total = fleetview.UseOf(v.Name)
	for _, w := range s.Workers {
		if !w.Answered || w.Tag == nil {
			continue
		}
		v.Rows = append(v.Rows, tagWorker{TagStats: *w.Tag, Answered: true, Bars: bars(w.Tag.Ranges)})
		v.Total.Add(*w.Tag)
	}
	return v, nil
}

// maxLooks bounds how many viewed tags are cached.
const maxLooks = 64

// look returns a tag as read a moment ago.
func (p *page) look(ctx context.Context, name string) (segment.Tag, error) {
	p.mu.Lock()
	s := p.looks[name]
	if s == nil {
		if len(p.looks) >= maxLooks {
			clear(p.looks)
		}
		s = share(p.cfg.Now, func(ctx context.Context) (segment.Tag, error) { return p.cfg.Look(ctx, name) })
		p.looks[name] = s
	}
	p.mu.Unlock()
	t, _, err := s.get(ctx)
	return t, err
}

// bars draws ranges one after the other.
func bars(ranges []subjects.TagRange) (all []rangeBar) {
	var length float64
	for _, r := range ranges {
		length += float64(r.Last-r.First) + 1
	}
	x := 0.0
	for _, r := range ranges {
		width := (float64(r.Last-r.First) + 1) / length * 100
		used := width * float64(r.Next-r.First) / (float64(r.Last-r.First) + 1)
		all = append(all, rangeBar{r, x, used, width})
		x += width
	}
	return all
}
