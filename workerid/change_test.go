package workerid_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// wider has two bits more below the time field than layout: its IDs are four
// times as large.
var wider = snowflake.Layout{Time: 39, Worker: 8, Sequence: 14, Business: 2, Epoch: layout.Epoch, Unit: 1}

func of(l snowflake.Layout) func(*workerid.Config) {
	return func(c *workerid.Config) { c.Layout = l }
}

// retired returns a registry in which a worker of layout issued IDs until it
// stopped cleanly, or was killed, and the last ID.
func retired(t *testing.T, killed bool) (m *workeridtest.Memory, last int64) {
	t.Helper()
	m = new(workeridtest.Memory)
	l := start(t, m)
	time.Sleep(10 * time.Second)
	w := l.number()
	last = issueID(t, l)
	if killed {
		l.crash(t.TempDir())
		m.Expire(w)
	} else {
		l.end()
	}
	return m, last
}

func issueID(t *testing.T, l *life) int64 {
	t.Helper()
	runs, err := l.gen().NextAt(l.now(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for id := range runs.All() {
		return id
	}
	return 0
}

func TestAChangedLayoutIssuesAboveAllOldIDs(t *testing.T) {
	same := layout // the sequence is longer, and the machine shorter: IDs of one time are as large
	same.Worker, same.Sequence = 8, 14
	for name, c := range map[string]struct {
		to     snowflake.Layout
		killed bool
	}{
		"wider": {wider, false}, "wider, after a kill": {wider, true},
		"as wide": {same, false}, "as wide, after a kill": {same, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, last := retired(t, c.killed)
			f := &workeridtest.Fake{Memory: m}
			before, err := workerid.ChangeLayout(t.Context(), f, c.to, false)
			if err != nil {
				t.Fatal(name, err)
			}
			if have, err := f.Deployment(t.Context()); err != nil || have != before.Old {
				t.Errorf("%s: %+v, %v: only looking changed it", name, have, err)
			}
			change, err := workerid.ChangeLayout(t.Context(), f, c.to, true)
			if err != nil || change.Above <= last || change.Lowest < change.Above {
				t.Fatalf("%s: %+v, %v", name, change, err)
			}
			old := start(t, m)
			if err := <-old.err; !errors.Is(err, workerid.ErrDeployment) {
				t.Errorf("%s: a worker of the old layout: %v, want ErrDeployment", name, err)
			}
			l := start(t, m, of(c.to))
			time.Sleep(6 * time.Minute)
			if id := issueID(t, l); id < change.Lowest || l.gen().From() < change.New.From {
				t.Errorf("%s: ID %d, want at least %d; from %d", name, id, change.Lowest, l.gen().From())
			}
			l.raised()
			l.end()
		})
	}
}

func TestALayoutIsNotChangedIfIDsCouldRepeatOrAWorkerIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		f := &workeridtest.Fake{Memory: m}
		refused := func(what string, to snowflake.Layout, want error) workerid.Change {
			t.Helper()
			was, err := f.Deployment(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, err := workerid.ChangeLayout(t.Context(), f, to, true)
			have, _ := f.Deployment(t.Context())
			if !errors.Is(err, want) || have != was {
				t.Errorf("%s: %v, want %v; the deployment is %+v", what, err, want, have)
			}
			return c
		}
		l := start(t, m)
		w := l.number()
		time.Sleep(10 * time.Second)
		refused("a heartbeat", wider, workerid.ErrInUse)
		m.Answer(w, workerid.Who{Instance: "a", Process: "p"})
		m.Expire(w)
		refused("an answer", wider, workerid.ErrInUse)
		l.end()
		refused("an answer still", wider, workerid.ErrInUse)
		m.Silence(w)

		later := layout
		later.Epoch += 3600_000
		refused("a later epoch", later, workerid.ErrNotAbove)
		narrow := layout
		narrow.Worker = 4
		c := refused("fewer bits", narrow, workerid.ErrNotAbove)
		if narrow.Epoch = c.Epoch; narrow.Epoch <= 0 {
			t.Fatalf("no epoch is proposed: %+v", c)
		}
		if _, err := workerid.ChangeLayout(t.Context(), f, narrow, true); err != nil {
			t.Errorf("the epoch that was proposed: %v", err)
		}
		if _, err := workerid.ChangeLayout(t.Context(), f, wider, true); err != nil {
			t.Errorf("on to more bits: %v", err)
		}
		if r, err := f.Record(t.Context(), w); err != nil || r.Damaged {
			t.Fatal(err)
		} else if r, err = f.Record(t.Context(), w); err == nil {
			r.Damaged = true
			if _, err := f.Write(t.Context(), w, r); err != nil {
				t.Fatal(err)
			}
		}
		refused("a damaged record", wider, workerid.ErrDamaged)
	})
}

// A worker that no question reaches does not extend its window, and one that
// acquires a number meanwhile makes the change fail.
func TestAKilledWorkerRaisesNoAlarmWhenItsLayoutWasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		l := start(t, m, in(dir))
		time.Sleep(10 * time.Second)
		w := l.number()
		l.crash(dir)
		m.Expire(w)
		if _, err := workerid.ChangeLayout(t.Context(), &workeridtest.Fake{Memory: m}, wider, true); err != nil {
			t.Fatal(err)
		}
		l = start(t, m, in(dir), of(wider))
		time.Sleep(6 * time.Minute)
		l.number()
		l.raised()
		l.end()
	})
}

// Another operator begins and ends while this one is about to write.
func TestTheLoserOfTwoChangesOfALayoutIsToldOfTheOther(t *testing.T) {
	other := wider
	other.Epoch -= 3600_000
	for _, c := range []struct {
		at   string // the call before which the other one makes its change, or begins it
		ends bool
		want error
		text string
	}{
		{"Write", true, workerid.ErrOvertaken, "to layout " + other.String()},
		{"Replace", true, workerid.ErrOvertaken, "to layout " + other.String()},
		{"Write", false, workerid.ErrInUse, "another operator"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := retired(t, false)
			f, second := &workeridtest.Fake{Memory: m}, &workeridtest.Fake{Memory: m}
			if !c.ends {
				second.OnCall(func(method string, call func() error) error {
					if method == "Replace" {
						return workeridtest.ErrInjected
					}
					return call()
				})
			}
			f.OnCall(func(method string, call func() error) error {
				if method == c.at {
					f.OnCall(nil)
					if _, err := workerid.ChangeLayout(t.Context(), second, other, true); (err == nil) != c.ends {
						t.Errorf("the other one: %v", err)
					}
				}
				return call()
			})
			_, err := workerid.ChangeLayout(t.Context(), f, wider, true)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("before %s: %v, want %v and %q", c.at, err, c.want, c.text)
			}
			have, err := f.Deployment(t.Context())
			if changed := have.Epoch == other.Epoch; err != nil || changed != c.ends {
				t.Errorf("before %s: the deployment is %+v, %v", c.at, have, err)
			}
		})
	}
}

func TestAnOldWorkerGainsNothingWhileTheLayoutIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := retired(t, true)
		f := &workeridtest.Fake{Memory: m}
		records, err := f.Records(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workerid.ChangeLayout(t.Context(), f, wider, true); err != nil {
			t.Fatal(err)
		}
		for w, r := range records {
			if _, err := f.Write(t.Context(), w, r); !errors.Is(err, workerid.ErrConflict) {
				t.Errorf("the old owner renewed number %d: %v", w, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m, _ := retired(t, false)
		f := &workeridtest.Fake{Memory: m}
		was, err := f.Deployment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.OnCall(func(method string, call func() error) error {
			if method == "Replace" {
				f.OnCall(nil)
				late := workerid.Record{Token: "late", Until: now() + 300_000, Deployment: was}
				if _, err := f.Write(t.Context(), 900, late); err != nil {
					t.Error(err)
				}
			}
			return call()
		})
		same := layout
		same.Worker, same.Sequence = 8, 14
		_, err = workerid.ChangeLayout(t.Context(), f, same, true)
		if have, _ := f.Deployment(t.Context()); !errors.Is(err, workerid.ErrInUse) || have != was {
			t.Errorf("%v, deployment %+v, want ErrInUse and the old one", err, have)
		}
	})
}
