package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// layoutCmd also has the flags --layout and --epoch, which addSettings adds.
type layoutCmd struct {
	Years      int64 `placeholder:"N"`
	Sites      int64 `placeholder:"N"`
	Machines   int64 `placeholder:"N"`
	Businesses int64 `placeholder:"N"`
	Peak       int64 `placeholder:"N"`
	Unit       time.Duration
	Holders    string `placeholder:"FIRST-LAST"`
}

func (*layoutCmd) help() help {
	return help{
		summary: "Plan or describe the layout of snowflakes.",
		detail: `Given needs, it plans the narrowest layout that meets them; its time begins
today unless --epoch says otherwise. Without needs it describes --layout. IDs of
at most 53 bits fit into the numbers of JavaScript.

With --holders it says which numbers of each site are for programs that draw their
own snowflakes; the others are for workers. Who has a number keeps it.

Examples:
  natsid layout --years 10 --sites 4 --machines 100 --businesses 10 --peak 100000
  natsid layout --layout js53
  natsid layout --holders 768-1023`,
		values: map[string]string{
			"years":      "How many years, from the epoch, the time field must last.",
			"sites":      "Sites that number their own machines. The default is 1.",
			"machines":   "Machines, that is workers, in one site.",
			"businesses": "Businesses that IDs distinguish. The default is 1.",
			"peak":       "Peak of one machine, in IDs per second.",
			"unit":       "Length of a tick, in whole milliseconds. The default is 1ms.",
			"holders":    "Numbers for programs, or off. The default is the upper half of a site's.",
		},
	}
}

func (c *layoutCmd) Run(s *session) error {
	if c.Holders != "" {
		return s.withJetStream(func(ctx context.Context, js jetstream.JetStream) error {
			return c.setHolders(ctx, s, s.numbers(js))
		})
	}
	l, err := s.layout()
	if *c != (layoutCmd{}) {
		if onCommandLine(s.call, "layout") {
			return usage(errors.New("give --layout, which describes it, or needs, which plan a new one"))
		}
		l, err = c.plan(s, time.Now())
	}
	if err != nil {
		return err
	}
	d := c.describe(l)
	return s.print(d, func(out *sheet) { d.print(out, l) })
}

// setHolders stores in the registry which worker numbers are for programs that make snowflakes themselves.
func (c *layoutCmd) setHolders(ctx context.Context, s *session, registry *kvregistry.Registry) error {
	h := workerid.Holders(c.Holders)
	d, err := registry.Deployment(ctx)
	if errors.Is(err, buckets.ErrNoBucket) {
		return s.neverRan()
	}
	if err != nil {
		return err
	}
	l, err := d.SnowflakeLayout()
	if err == nil {
		_, err = h.Of(l, 0)
	}
	if err != nil {
		return usage(err)
	}
	if err := registry.SetHolders(ctx, h); err != nil {
		return err
	}
	outcome := map[string]workerid.Holders{"holders": h}
	return s.print(outcome, func(out *sheet) {
		out.line("numbers of programs: %s; who has a number keeps it", h)
	})
}

const year = 365.25 * 24 * time.Hour

// plan returns the layout with the fewest bits for the needs in the flags. Its epoch is --epoch, or the start of
// today.
func (c *layoutCmd) plan(s *session, now time.Time) (l snowflake.Layout, err error) {
	c.Sites, c.Businesses, c.Unit = cmp.Or(c.Sites, 1), cmp.Or(c.Businesses, 1), cmp.Or(c.Unit, time.Millisecond)
	for _, need := range []int64{c.Years, c.Sites, c.Machines, c.Businesses, c.Peak} {
		if need < 1 || need > 1e12 || c.Years > 1e6 || c.Unit%time.Millisecond != 0 {
			return l, usage(errors.New("want --years up to 10^6, --machines, --peak, and --unit in whole milliseconds"))
		}
	}
	unit := c.Unit.Milliseconds()
	l = snowflake.Layout{
		Time: width(year.Milliseconds()*c.Years, unit), Site: width(c.Sites, 1), Worker: max(1, width(c.Machines, 1)),
		Business: width(c.Businesses, 1), Sequence: max(1, width(c.Peak*unit, 1000)), Unit: unit,
	}
	if l.Epoch, err = s.epoch(now); err != nil {
		return l, err
	}
	if err = l.Validate(); err != nil {
		return l, usage(fmt.Errorf("%w; lower a need, or take a longer --unit", err))
	}
	if !now.Before(l.Ends()) {
		return l, usage(fmt.Errorf("%s would have ended on %s: give more years, or a later --epoch", l, l.Ends()))
	}
	return l, nil
}

// width returns how many bits are needed to tell apart as many values as the quotient count/of, rounded up.
func width(count, of int64) int { return bits.Len64(uint64((count+of-1)/of - 1)) }

// layoutJSON describes a layout. Fields leaves out fields that have no bits.
type layoutJSON struct {
	Layout  string        `json:"layout"`
	UnitMs  int64         `json:"unit_ms"` // the length of a tick
	Epoch   time.Time     `json:"epoch"`
	Ends    time.Time     `json:"ends"`
	Largest subjects.ID   `json:"largest"` // the largest ID that the layout allows
	Fields  []layoutField `json:"fields"`
}

// layoutField is a field. Capacity is in Unit, such as years. Need is the capacity that a flag asks for; 0 if none
// does.
type layoutField struct {
	Field    string  `json:"field"`
	Bits     int     `json:"bits"`
	Capacity float64 `json:"capacity"`
	Unit     string  `json:"unit"`
	Need     int64   `json:"need,omitempty"`
}

func (c *layoutCmd) describe(l snowflake.Layout) layoutJSON {
	d := layoutJSON{
		Layout: l.String(), UnitMs: l.Unit, Epoch: time.UnixMilli(l.Epoch).UTC(), Ends: l.Ends(),
		Largest: subjects.ID(int64(1)<<l.Bits() - 1),
	}
	tick := float64(l.Unit) / 1000
	for _, f := range []layoutField{
		{"time", l.Time, math.Ldexp(tick, l.Time) / year.Seconds(), "years", c.Years},
		{"site", l.Site, math.Ldexp(1, l.Site), "sites", c.Sites},
		{"machine", l.Worker, math.Ldexp(1, l.Worker), "machines a site", c.Machines},
		{"business", l.Business, math.Ldexp(1, l.Business), "businesses", c.Businesses},
		{"sequence", l.Sequence, math.Ldexp(1, l.Sequence) / tick, "IDs/s a machine", c.Peak},
	} {
		if f.Bits > 0 {
			d.Fields = append(d.Fields, f)
		}
	}
	return d
}

func (d layoutJSON) print(out *sheet, l snowflake.Layout) {
	out.head("FIELD\tBITS\tNEED\tCAPACITY")
	for _, f := range d.Fields {
		need := ""
		if f.Need > 0 {
			need = strconv.FormatInt(f.Need, 10)
		}
		out.row(f.Field, f.Bits, need, strconv.FormatFloat(math.Round(10*f.Capacity)/10, 'f', -1, 64)+" "+f.Unit)
	}
	out.line("\n%d bits, ticks of %v, ends %s", l.Bits(), time.Duration(l.Unit)*time.Millisecond, cell(d.Ends))
	site := ""
	if l.Site > 0 {
		site = fmt.Sprintf(" --site N    N is 0 to %d", l.Sites()-1)
	}
	fmt.Fprintf(out, "natsid --layout %s --epoch %s%s\n", l, d.Epoch.Format(time.RFC3339Nano), site)
}
