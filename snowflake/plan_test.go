package snowflake

import (
	"errors"
	"strings"
	"testing"
)

// article is the needs of the company in Leaf's articles.
var article = Needs{Years: 10, Sites: 4, Machines: 100, Businesses: 10, Peak: 100_000, Unit: 1}

func TestTheArticlesCompanyGetsTheArticlesLayout(t *testing.T) {
	if l, err := Plan(article, Article.Epoch); err != nil || l != Article {
		t.Errorf("%+v, %v, want %+v", l, err, Article)
	}
}

func TestPlansAreAsNarrowAsTheNeedsAllow(t *testing.T) {
	for _, c := range []struct {
		needs Needs
		want  string
	}{
		{Needs{Years: 1, Sites: 1, Machines: 1, Businesses: 1, Peak: 1, Unit: 1}, "35+1+1"},
		{Needs{Years: 1, Sites: 2, Machines: 2, Businesses: 2, Peak: 2000, Unit: 1}, "35+1+1+1+1"},
		{Needs{Years: 1, Sites: 3, Machines: 3, Businesses: 3, Peak: 2001, Unit: 1}, "35+2+2+2+2"},
		{Needs{Years: 69, Sites: 1, Machines: 1024, Businesses: 1, Peak: 4_096_000, Unit: 1}, "41+10+12"},
		{Needs{Years: 70, Sites: 1, Machines: 1025, Businesses: 1, Peak: 4_096_001, Unit: 1}, "42+11+13@"},
		{Needs{Years: 10, Sites: 4, Machines: 100, Businesses: 10, Peak: 100_000, Unit: 10}, "35+2+7+4+10@10ms"},
		{Needs{Years: 10, Sites: 4, Machines: 100, Businesses: 10, Peak: 100_000, Unit: 1000}, "29+2+7+4+17@1s"},
		{Needs{Years: 136, Sites: 1, Machines: 1 << 31, Businesses: 1, Peak: 1, Unit: 1000}, "32+31+1@"},
		{Needs{Years: 1, Sites: 1, Machines: 1, Businesses: 1, Peak: 1, Unit: 60_000}, "20+1+6@1m0s"},
	} {
		l, err := Plan(c.needs, 0)
		if strings.HasSuffix(c.want, "@") { // one bit too many
			if _, ok := errors.AsType[*FitError](err); !ok {
				t.Errorf("%+v: %s, %v, want none", c.needs, l, err)
			}
			continue
		}
		if err != nil || l.String() != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.needs, l, err, c.want)
		}
	}
}

func TestWhatCannotFitIsRefusedWithTheNearestThatDoes(t *testing.T) {
	for _, c := range []struct {
		law              string
		needs            Needs
		fault            string
		largest, nearest Needs
	}{
		{
			"one bit too many: the need that loses least gives it",
			Needs{Years: 100, Sites: 4, Machines: 100, Businesses: 10, Peak: 4_000_000, Unit: 1},
			"42+2+7+4+12: 67 bits",
			Needs{Years: 8, Sites: 0, Machines: 8, Businesses: 1, Peak: 256_000, Unit: 1},
			Needs{Years: 69, Sites: 4, Machines: 64, Businesses: 8, Peak: 2_048_000, Unit: 1},
		},
		{
			"only one bit",
			Needs{Years: 100, Sites: 1, Machines: 1000, Businesses: 1, Peak: 4_000_000, Unit: 1}, "42+10+12: 64 bits",
			Needs{Years: 69, Machines: 512, Peak: 2_048_000, Unit: 1},
			Needs{Years: 69, Sites: 1, Machines: 1000, Businesses: 1, Peak: 4_000_000, Unit: 1},
		},
		{
			"site and machine have a limit of their own",
			Needs{Years: 5, Sites: 1 << 15, Machines: 100_000, Businesses: 1, Peak: 1, Unit: 1000},
			"32 bits for site and machine",
			Needs{Sites: 1 << 14, Machines: 65_536, Unit: 1000},
			Needs{Years: 5, Sites: 1 << 15, Machines: 65_536, Businesses: 1, Peak: 1, Unit: 1000},
		},
		{
			"no one alone can make room",
			Needs{Years: 1e6, Sites: 1e12, Machines: 1e12, Businesses: 1e12, Peak: 1e12, Unit: 1},
			"55+40+40+40+30: 205 bits",
			Needs{Unit: 1},
			Needs{}, // whatever fits
		},
	} {
		_, err := Plan(c.needs, 0)
		fit, ok := errors.AsType[*FitError](err)
		if !ok || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", c.law, err, c.fault)
			continue
		}
		if fit.Largest != c.largest {
			t.Errorf("%s: largest %+v, want %+v", c.law, fit.Largest, c.largest)
		}
		if c.nearest != (Needs{}) && fit.Nearest != c.nearest {
			t.Errorf("%s: nearest %+v, want %+v", c.law, fit.Nearest, c.nearest)
		}
		if _, err := Plan(fit.Nearest, 0); err != nil {
			t.Errorf("%s: the nearest, %+v, does not fit: %v", c.law, fit.Nearest, err)
		}
	}
}

func TestNeedsOutOfRangeAreRefused(t *testing.T) {
	for word, spoil := range map[string]func(*Needs){
		"years 0, want 1 to 1000000":       func(n *Needs) { n.Years = 0 },
		"years 1000001":                    func(n *Needs) { n.Years = 1_000_001 },
		"sites -1":                         func(n *Needs) { n.Sites = -1 },
		"machines 1000000000001, want 1":   func(n *Needs) { n.Machines = 1e12 + 1 },
		"businesses 0":                     func(n *Needs) { n.Businesses = 0 },
		"peak 9223372036854775807, want 1": func(n *Needs) { n.Peak = 1<<63 - 1 },
		"a tick of 0 ms":                   func(n *Needs) { n.Unit = 0 },
		"a tick of 60001 ms":               func(n *Needs) { n.Unit = 60_001 },
	} {
		n := article
		spoil(&n)
		_, err := Plan(n, 0)
		if _, fit := errors.AsType[*FitError](err); fit || err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %q", err, word)
		}
	}
	if _, err := Plan(article, -1); err == nil || !strings.Contains(err.Error(), "epoch") {
		t.Errorf("epoch -1: %v", err)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(int64(10), int64(4), int64(100), int64(10), int64(100_000), int64(1))
	f.Add(int64(1e6), int64(1e12), int64(1e12), int64(1e12), int64(1e12), int64(60_000))
	f.Add(int64(1), int64(1), int64(1), int64(1), int64(1e12), int64(1))
	f.Fuzz(func(t *testing.T, years, sites, machines, businesses, peak, unit int64) {
		n := Needs{years, sites, machines, businesses, peak, unit}
		if n.check() != nil {
			return
		}
		l, err := Plan(n, 0)
		fit, ok := errors.AsType[*FitError](err)
		if !ok {
			if err != nil || !meets(l, n) {
				t.Fatalf("%+v: %s, %v does not meet it", n, l, err)
			}
			for i, width := range l.widths() {
				narrower := l
				if i == 0 && width > 1 {
					narrower.Time--
				} else if i == 4 && width > 1 {
					narrower.Sequence--
				} else {
					continue
				}
				if meets(narrower, n) {
					t.Fatalf("%+v: %s, but %s would do", n, l, narrower)
				}
			}
			return
		}
		l, err = Plan(fit.Nearest, 0)
		if err != nil || !meets(l, fit.Nearest) {
			t.Fatalf("%+v: nearest %+v: %v", n, fit.Nearest, err)
		}
		for i, need := range n.fields() {
			near, large := fit.Nearest.fields()[i], fit.Largest.fields()[i]
			if *near > *need || *large >= *need || *large < 0 {
				t.Fatalf("%+v: nearest %+v, largest %+v", n, fit.Nearest, fit.Largest)
			}
			if *near < *need { // lowered no further than necessary
				more := fit.Nearest
				*more.fields()[i]++
				if _, err := Plan(more, 0); err == nil {
					t.Fatalf("%+v: nearest %+v, but %+v would do", n, fit.Nearest, more)
				}
			}
			for add, fits := range map[int64]bool{0: true, 1: false} {
				one := n
				if *one.fields()[i] = *large + add; *large+add == 0 {
					continue
				}
				if _, err := Plan(one, 0); (err == nil) != fits {
					t.Fatalf("%+v: largest %+v, but %+v: %v", n, fit.Largest, one, err)
				}
			}
		}
	})
}

// meets reports whether a layout has room for the needs, counted in floating
// point where an int64 could overflow.
func meets(l Layout, n Needs) bool {
	two := func(width int) float64 { return float64(int64(1) << width) }
	return two(l.Time)*float64(l.Unit) >= float64(n.Years)*float64(Year.Milliseconds()) &&
		two(l.Site) >= float64(n.Sites) && two(l.Worker) >= float64(n.Machines) &&
		two(l.Business) >= float64(n.Businesses) &&
		two(l.Sequence)*1000 >= float64(n.Peak)*float64(l.Unit)
}
