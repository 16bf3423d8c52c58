package page

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/subjects"
)

// maxMapped is the largest number of worker numbers for which a map is drawn, and mapColumns the length of its rows.
const (
	maxMapped  = 4096
	mapColumns = 64
	mapCell    = 10
)

// numbersView is the map of all worker numbers, and a list of the numbers in use.
type numbersView struct {
	All, Live, Blocked, Free, Unused int
	Mapped                           bool
	Width, Height                    int
	Cells                            []numberCell // of numbers that were ever used
	Rows                             []numberRow  // of numbers that are live or blocked
	Hidden                           int          // rows that are not shown
	Trouble                          error
}

// A numberCell is a number on the map.
type numberCell struct {
	Number, X, Y int
	State, Name  string
}

// A numberRow is a number in use.
type numberRow struct {
	Number       int
	State, Name  string
	Since, Until time.Time
	OffsetMs     int64
}

// maxRows bounds the list of numbers in use.
const maxRows = 500

func (p *page) numbers(r *http.Request) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{})
	if err != nil {
		return nil, err
	}
	n := s.Numbers
	v := numbersView{All: p.cfg.Layout.Workers(), Trouble: n.Trouble}
	v.Mapped, v.Width = v.All <= maxMapped, min(v.All, mapColumns)*mapCell
	v.Height = (v.All + mapColumns - 1) / mapColumns * mapCell
	used := slices.Sorted(maps.Keys(n.Records))
	for _, number := range used {
		record, row := n.Records[number], numberRow{Number: number}
		row.Name, row.Until = record.Instance, fleetview.Moment(record.Until)
		beat, live := n.Heartbeats[number]
		switch {
		case live:
			row.State, row.Since, row.OffsetMs = "live", fleetview.Moment(beat.Since), beat.Offset().Milliseconds()
			v.Live++
		case row.Until.After(s.At):
			row.State = "blocked"
			v.Blocked++
		default:
			row.State = "free"
			v.Free++
		}
		if v.Mapped {
			v.Cells = append(v.Cells, numberCell{
				number, number % mapColumns * mapCell, number / mapColumns * mapCell, row.State, row.Name,
			})
		}
		switch {
		case row.State == "free":
		case len(v.Rows) < maxRows:
			v.Rows = append(v.Rows, row)
		default:
			v.Hidden++
		}
	}
	v.Unused = v.All - len(used)
	return v, nil
}
