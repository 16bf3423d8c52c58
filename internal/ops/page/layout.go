package page

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/snowflake"
)

// layoutView is the layout, and the parts of an ID in it.
type layoutView struct {
	Text         string
	Tick         time.Duration
	Begins, Ends time.Time
	Soon         bool // it ends within some years
	Left         string
	Largest      int64
	JavaScript   bool // its IDs fit into numbers of JavaScript
	Fields       []fieldBox
	ID           string // the ID in the request
	Parts        *snowflake.Parts
	Fault        string // of the ID
}

// A fieldBox is a field of an ID in a drawing that is 100 wide.
type fieldBox struct {
	Name        string
	Bits        int
	High, Low   int // numbers of its first and last bit
	X, Width    float64
	Range       string // of these bit numbers
	Room, Value string
}

func (p *page) layout(r *http.Request) (any, error) {
	l := p.cfg.Layout
	now := p.cfg.Now()
	v := layoutView{
		Text: l.String(), Tick: time.Duration(l.Unit) * time.Millisecond,
		Begins: time.UnixMilli(l.Epoch).UTC(), Ends: l.Ends(), Soon: l.EndsSoon(now),
		Largest: int64(1)<<l.Bits() - 1, JavaScript: l.Bits() <= 53, ID: strings.TrimSpace(r.FormValue("id")),
	}
	v.Left = fleetview.Count(int(v.Ends.Sub(now).Hours()/24/365)) + " years"
	if v.ID != "" {
		id, err := strconv.ParseInt(v.ID, 10, 64)
		parts, not := l.Decode(id)
		switch {
		case err != nil:
			v.Fault = "That is no decimal number of 63 bits."
		case not != nil:
			v.Fault = "That is not an ID of this layout."
		default:
			v.Parts = &parts
		}
	}
	v.Fields = boxes(l, v.Parts)
	return v, nil
}

// boxes draws the fields of a layout, with the values of an ID if there is one.
func boxes(l snowflake.Layout, parts *snowflake.Parts) (all []fieldBox) {
	if parts == nil {
		parts = &snowflake.Parts{}
	}
	high, x := 63, 0.0
	for _, f := range []struct {
		name  string
		bits  int
		value int64
	}{
		{"zero", 64 - l.Bits(), 0}, {"time", l.Time, parts.Tick}, {"site", l.Site, int64(parts.Site)},
		{"machine", l.Worker, int64(parts.Machine)}, {"business", l.Business, parts.Business},
		{"sequence", l.Sequence, parts.Sequence},
	} {
		if f.bits == 0 {
			continue
		}
		b := fieldBox{Name: f.name, Bits: f.bits, High: high, Low: high - f.bits + 1, X: x}
		b.Width = float64(f.bits) / 64 * 100
		b.Room, b.Value = fleetview.Count(int64(1)<<min(f.bits, 62)), strconv.FormatInt(f.value, 10)
		if b.Range = strconv.Itoa(b.High); b.Low < b.High {
			b.Range += "–" + strconv.Itoa(b.Low)
		}
		if f.name == "zero" {
			b.Room = "1"
		}
		all = append(all, b)
		high, x = b.Low-1, x+b.Width
	}
	return all
}

// settingsView is the settings in force in this worker.
type settingsView struct {
	Version, Instance string
	Settings          []Setting
}

func (p *page) settings(*http.Request) (any, error) {
	return settingsView{Version: p.cfg.Version, Instance: p.cfg.Instance(), Settings: p.cfg.Settings()}, nil
}
