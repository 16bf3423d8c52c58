package workerid_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func program(c *workerid.Config) { c.Program = "host" }

func tiny(c *workerid.Config) { c.Layout.Worker = 2 }

// A registry without a deployment may be one that lost its own.
func TestAProgramFoundsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		p := start(t, m, program)
		time.Sleep(20 * time.Second)
		if s := p.keeper.Status(); s.Held || !errors.Is(s.Trouble, workerid.ErrNoDeployment) {
			t.Errorf("%+v, want a refusal", s)
		}
		p.raised(workerid.RegistryConflict)
		w := start(t, m)
		time.Sleep(20 * time.Second)
		if p.number() < 512 || w.number() >= 512 {
			t.Errorf("the program has %d, the worker %d", p.number(), w.number())
		}
		if r, err := w.reg.Record(t.Context(), p.number()); err != nil || r.Program != "host" {
			t.Errorf("%+v, %v, want a record that names the program's host", r, err)
		}
		p.end()
		w.end()
	})
}

func TestWorkersAndProgramsTakeTheirOwnNumbersOnly(t *testing.T) {
	for _, c := range []struct {
		holders           workerid.Holders
		workers, programs []int
		text              string
	}{
		{"", []int{0, 1}, []int{2, 3}, "2-3"},
		{"1-1", []int{0, 2, 3}, []int{1}, "1-1"},
		{workerid.NoHolders, []int{0, 1, 2, 3}, nil, "programs have none"},
		{"0-3", nil, []int{0, 1, 2, 3}, "programs have 0-3"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := new(workeridtest.Memory)
			d := deploy(m, tiny)
			d.Holders = c.holders
			m.Deploy(d)
			for _, of := range []struct {
				want   []int
				change []func(*workerid.Config)
			}{
				{c.workers, []func(*workerid.Config){tiny}}, {c.programs, []func(*workerid.Config){tiny, program}},
			} {
				left := make(map[int]bool)
				for _, w := range of.want {
					left[w] = true
				}
				for range of.want {
					l := start(t, m, of.change...)
					time.Sleep(10 * time.Second)
					if !left[l.number()] {
						t.Errorf("%q: number %d, want one of %v", c.holders, l.number(), left)
					}
					delete(left, l.number())
					defer l.end()
				}
				over := start(t, m, of.change...)
				time.Sleep(10 * time.Second)
				s := over.keeper.Status()
				isEmpty := strings.Contains(fmt.Sprint(s.Trouble), "natsid layout --holders")
				if err := s.Trouble; s.Held || isEmpty != (len(of.want) == 0) ||
					!errors.Is(err, workerid.ErrExhausted) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%q: %+v, want none, since programs have %s", c.holders, s, c.text)
				}
				over.raised(workerid.NumbersExhausted)
				over.end()
			}
		})
	}
}

// Otherwise a change of the range would stop those that run, and make them forget their numbers.
func TestAProcessKeepsItsNumberWhenTheRangeOfProgramsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		d := deploy(m)
		l := start(t, m, in(dir))
		time.Sleep(10 * time.Second)
		was := l.number()
		d.Holders = "0-511"
		m.Deploy(d)
		time.Sleep(10 * time.Minute)
		l.issue()
		l.crash(dir)
		l = start(t, m, in(dir))
		time.Sleep(10 * time.Second)
		if is := l.number(); is != was || l.issue().Tick == 0 {
			t.Errorf("number %d, want %d", is, was)
		}
		l.end()
	})
}

func TestARangeOfProgramsIsOneOfTheSite(t *testing.T) {
	for _, c := range []struct {
		h    workerid.Holders
		want string
	}{
		{"", "192-255"}, {"3-5", "131-133"}, {workerid.NoHolders, "none"}, {"0-127", "128-255"},
	} {
		s, err := c.h.Of(snowflake.Article, 1)
		if err != nil || s.String() != c.want {
			t.Errorf("%q: %v %v, want %s", c.h, s, err, c.want)
		}
	}
	for _, bad := range []workerid.Holders{"5", "5-3", "-1-3", "x-y", "0-128"} {
		if s, err := bad.Of(snowflake.Article, 1); err == nil {
			t.Errorf("%q: %v", bad, s)
		}
	}
}
