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
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A listing has the tags of the store.
type listing struct {
	tags   []segment.Tag        // in the order of names
	at     map[string]int       // index in tags, by name
	faults []fleetview.TagFault // the fullest tags first
	wrong  []fleetview.Fault    // faults without the names of their tags
}

// errLate is returned if the first read takes longer than firstList: a view does not wait for all of its data.
var errLate = errors.New("reading takes a while; the result appears here when it is done")

const (
	firstList  = 500 * time.Millisecond
	listWithin = 10 * time.Second // bounds an attempt to read
)

// listed returns the tags of the last read, its time, and the error of the last attempt.
func (p *page) listed(ctx context.Context) (listing, time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstList, errLate)
	defer cancel()
	l, at, err := p.tags.Get(ctx)
	if err != nil && err == ctx.Err() {
		err = context.Cause(ctx)
	}
	return l, at, err
}

func (p *page) list() (l listing, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), listWithin)
	defer cancel()
	l.tags, err = p.cfg.Tags(ctx)
	l.at = make(map[string]int, len(l.tags))
	for i, t := range l.tags {
		l.at[t.Name] = i
		f, ok := fleetview.FaultOf(t.Name, t.Rules, t.MaxID, p.cfg.Info(t).Unservable, p.cfg.Now())
		if ok && !t.Disabled {
			l.faults = append(l.faults, f)
		}
	}
	l.wrong = fleetview.FullestFirst(l.faults)
	return l, err
}

// A tagRow is a tag in the list. Busy is set if it is among the busiest tags of a worker.
type tagRow struct {
	subjects.TagInfo
	Busy *fleetview.Use
	Full bool // its numbers are used up, or nearly so
}

// tagsView is the data of the view "Tags": one page of the list.
type tagsView struct {
	Query      string
	By         string // name; or speed or trouble, which list only some tags
	Rows       []tagRow
	First      int // number of the first row, from 1
	Last       int
	Found, All int
	Prev, Next string // links; "" for none
	Marks      bool   // some tag has a mark and a row of the table
	At         time.Time
	Trouble    error // why the list is out of date
	Memory     bool  // the store was never read: the tags are those in the memory of workers
}

func (p *page) tagList(r *http.Request, s fleetview.Snapshot) (any, error) {
	v := tagsView{Query: strings.TrimSpace(r.FormValue("q")), By: "name"}
	if by := r.FormValue("by"); by == "speed" || by == "trouble" {
		v.By = by
	}
	l, at, trouble := p.listed(r.Context())
	v.All, v.At, v.Trouble, v.Memory = len(l.tags), at, trouble, trouble != nil && at.IsZero()
	busy, full, busiest := make(map[string]*fleetview.Use), make(map[string]bool), s.Busiest()
	if v.Memory {
		slices.SortStableFunc(busiest, func(x, y fleetview.Use) int {
			return cmp.Compare(x.SecondsLeft, y.SecondsLeft)
		})
	}
	for i := range busiest {
		busy[busiest[i].Tag] = &busiest[i]
	}
	for _, f := range l.faults {
		full[f.Tag] = true
	}
	for _, t := range v.paged(matching(v.chosen(l, busiest, full), v.Query), r) {
		row := tagRow{p.cfg.Info(t), busy[t.Name], full[t.Name]}
		if v.Memory {
			row.Unservable = "" // only the store would show this
		}
		v.Marks = v.Marks || row.MarkAhead != nil
		v.Rows = append(v.Rows, row)
	}
	return v, nil
}

// chosen returns the tags that the view lists, in its order, before the search by name.
func (v *tagsView) chosen(l listing, busiest []fleetview.Use, full map[string]bool) (found []segment.Tag) {
	switch {
	case v.Memory:
		for _, u := range busiest {
			found = append(found, segment.Tag{Name: u.Tag, Step: u.Step})
		}
		v.All = len(found)
		return found
	case v.By == "name":
		return l.tags
	case v.By == "trouble":
		for _, f := range l.faults {
			found = append(found, l.tags[l.at[f.Tag]])
		}
	}
	for _, u := range busiest {
		i, ok := l.at[u.Tag]
		inTrouble := !full[u.Tag] && (u.Failing || u.Waiting > 0)
		if ok && (inTrouble || v.By != "trouble" && u.IDsPerSecond > 0) {
			found = append(found, l.tags[i])
		}
	}
	return found
}

// paged returns the tags on the requested page, and sets their position and the links to the pages beside it.
func (v *tagsView) paged(all []segment.Tag, r *http.Request) []segment.Tag {
	const size = 50
	number, _ := strconv.Atoi(r.FormValue("p"))
	number = max(0, min(number, (len(all)-1)/size))
	from, to := number*size, min(number*size+size, len(all))
	if v.Found, v.First, v.Last = len(all), from+1, to; number > 0 {
		v.Prev = v.link(number - 1)
	}
	if to < len(all) {
		v.Next = v.link(number + 1)
	}
	return all[from:to]
}

// link returns the address of another page of the same list.
func (v *tagsView) link(number int) string {
	return "/tags?" + url.Values{"q": {v.Query}, "by": {v.By}, "p": {strconv.Itoa(number)}}.Encode()
}

// matching returns the tags whose names contain the text, in upper or lower case.
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

// A tagView is the data of the view of one tag, with the figures of each worker.
type tagView struct {
	Name    string
	Info    subjects.TagInfo
	Exists  bool
	At      time.Time // when Info was read
	Trouble error     // why Info is out of date
	Rows    []wire.TagStats
	Total   fleetview.Use
}

// maxName is the greatest length, in bytes, of a name that the page looks up. It is above that of tags, 128, since rows
// of a table may have longer names, and the page shows why they cannot be served.
const maxName = 1024

func (p *page) tag(r *http.Request, _ fleetview.Snapshot) (any, error) {
	v := tagView{Name: r.FormValue("name")}
	if len(v.Name) > maxName {
		return v, nil
	}
	l, at, err := p.listed(r.Context())
	i, exists := l.at[v.Name]
	if v.At, v.Trouble, v.Exists = at, err, exists; exists {
		v.Info = p.cfg.Info(l.tags[i])
	} else if err == nil {
		return v, nil
	}
	s, err := p.cfg.Fleet.Look(r.Context(), wire.ViewRequest{Tag: v.Name})
	if err != nil {
		return nil, err
	}
	v.Total = fleetview.UseOf(v.Name)
	for _, w := range s.Workers {
		if w.Answered && w.Tag != nil {
			v.Rows = append(v.Rows, *w.Tag)
			v.Total.Add(*w.Tag)
		}
	}
	return v, nil
}
