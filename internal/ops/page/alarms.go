package page

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/subjects"
)

// alarmDays is how many days alarms are kept.
const alarmDays = 30

// alarmsView is the stored alarms.
type alarmsView struct {
	Kind    string // "" for all
	Kinds   []alarmKind
	Rows    []alarmRow
	Days    []alarmDay // the timeline
	Most    int        // on one day
	Trouble error
	Prev    string
	Next    string
}

type alarmKind struct {
	Kind  subjects.Alarm
	Count int
	Here  bool
}

type alarmRow struct {
	subjects.AlarmEvent
	Do []piece
}

// A piece of a text is plain, or code.
type piece struct {
	Text string
	Code bool
}

type alarmDay struct {
	Day          time.Time
	Count        int
	X, Y, Height float64
}

func (p *page) alarmList(r *http.Request) (any, error) {
	events, _, err := p.alarms.get(r.Context())
	v := alarmsView{Kind: r.FormValue("kind"), Trouble: err}
	var shown []subjects.AlarmEvent
	counts := make(map[subjects.Alarm]int)
	for _, e := range events {
		counts[e.Kind]++
		if v.Kind == "" || v.Kind == string(e.Kind) {
			shown = append(shown, e)
		}
	}
	for kind, n := range counts {
		v.Kinds = append(v.Kinds, alarmKind{kind, n, v.Kind == string(kind)})
	}
	slices.SortFunc(v.Kinds, func(x, y alarmKind) int { return strings.Compare(string(x.Kind), string(y.Kind)) })
	v.Days, v.Most = timeline(shown, p.cfg.Now())
	shown, _, v.Prev, v.Next = paged(shown, r, v.link)
	for _, e := range shown {
		v.Rows = append(v.Rows, alarmRow{e, pieces(remedy(e.Kind))})
	}
	return v, nil
}

func (v alarmsView) link(number int) string {
	return "/alarms?kind=" + v.Kind + "&p=" + strconv.Itoa(number)
}

// timeline counts the alarms of each day, as bars of at most 40 in height.
func timeline(events []subjects.AlarmEvent, now time.Time) (days []alarmDay, most int) {
	today := now.UTC().Truncate(24 * time.Hour)
	counts := make(map[time.Time]int)
	for _, e := range events {
		d := e.Time.UTC().Truncate(24 * time.Hour)
		counts[d]++
		most = max(most, counts[d])
	}
	for i := range alarmDays {
		d := today.AddDate(0, 0, i+1-alarmDays)
		height := 0.0
		if counts[d] > 0 {
			height = max(3, 40*float64(counts[d])/float64(most))
		}
		days = append(days, alarmDay{d, counts[d], float64(i * 20), 40 - height, height})
	}
	return days, most
}

// remedy returns an operator's remedy for a kind of alarm.
func remedy(kind subjects.Alarm) string {
	for _, a := range subjects.Alarms() {
		if a.Kind == kind {
			return a.Do
		}
	}
	return ""
}

// pieces splits a text at its back quotes.
func pieces(text string) (all []piece) {
	for i, part := range strings.Split(text, "`") {
		all = append(all, piece{part, i%2 == 1})
	}
	return all
}
