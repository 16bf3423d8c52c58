package workerid

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/natsid/natsid/snowflake"
)

// A write of the file that failed may be on disk. A later life that finds it would
// resume from its fence, which this process has long passed if it continues the
// claim without a file.
func TestAFailedStateFileLeavesNoUnconfirmedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		of.file = newFile(t, t.TempDir())
		if err := of.file.settle(s.deployment, "me"); err != nil {
			t.Fatal(err)
		}
		of.file.write = func([]byte) error { return errInjected }
		h := newChooser(s, of)
		if c, err := h.find(t.Context()); !errors.Is(err, ErrStateFile) || len(s.records) == 0 {
			t.Fatalf("%+v, %v, %d records; want a number won, and the state file to fail", c, err, len(s.records))
		}
		if h.unconfirmed != nil {
			t.Error("the claim can be continued")
		}
	})
}

// A later life that starts while the registry is out of reach would resume it.
func TestALostClaimDoesNotStayInTheStateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStub()
		k := New(Config{
			Registry: s, Layout: small, Now: wallClock, StateDir: t.TempDir(),
			Use: func(*snowflake.Generator) {},
		})
		c := opened(t, k.terms)
		if c.file.Claim == nil {
			t.Fatal("the state file has no claim")
		}
		k.life.becomeHolding(c)
		k.life.becomeClosed(c, errLost)
		if stop, err := k.giveUp(t.Context(), c, errLost); stop || err != nil || c.file.Claim != nil {
			t.Errorf("stop %t, %v, claim %+v; want none", stop, err, c.file.Claim)
		}
	})
}

// A later life would resume the claim of the file beyond the lowered end.
func TestAReleaseThatIsNotInTheStateFileLowersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		of.file = newFile(t, t.TempDir())
		c := opened(t, of)
		of.file.write = func([]byte) error { return errInjected }
		until := s.records[1].Until
		if err := c.release(t.Context()); !errors.Is(err, ErrStateFile) || s.records[1].Until != until {
			t.Errorf("%v, until lowered by %d ms; want ErrStateFile and nothing", err, until-s.records[1].Until)
		}
	})
}

// The registry may have lost its state while the first write was under way: then
// the owner answers, or another worker that was as fast.
func TestANumberIsAskedForAgainAfterItsFirstWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		for w := range 3 {
			s.records[w] = Record{Token: "t", Until: wallClock() + 60_000, Deployment: ofStub()}
		}
		s.after = func() error {
			s.answers[3] = Who{Instance: "other", Process: "q"}
			return nil
		}
		if c, err := choose(t, s, of); !errors.Is(err, ErrExhausted) || s.records[3].Token == "" {
			t.Errorf("%+v, %v, record %+v; want number 3 written and given up", c, err, s.records[3])
		}
	})
}

// A renewal whose acknowledgement was lost is written again at once, and the clock
// may have been set back since. IDs up to the acknowledged end of the window may
// have been issued.
func TestARenewalNeverLowersUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		c := opened(t, of)
		s.after = func() error { return errInjected }
		c.compared.now = c.from + 20_000
		if err := c.renew(t.Context()); err == nil {
			t.Fatal("the acknowledgement was not lost")
		}
		s.after = nil
		c.compared.now = c.from - 1000
		if err := c.renew(t.Context()); err != nil || s.records[1].Until < c.from+60_000 {
			t.Errorf("%v, the window is %d ms long, want 60000", err, s.records[1].Until-c.from)
		}
	})
}

// A restored registry gives its revisions again: the one that this worker's last
// write had may be that of another owner's record.
func TestNoWriteHitsAForeignRecordOfTheSameRevision(t *testing.T) {
	for name, write := range map[string]func(*claim, context.Context) error{
		"renewal": (*claim).renew, "release": (*claim).release,
	} {
		t.Run(name, func(t *testing.T) {
			s, of := newStub()
			c := opened(t, of)
			c.compared.now += 30_000 // a renewal is due
			foreign := Record{Token: "other", Instance: "other", Until: c.from + 90_000, Revision: c.revision}
			s.records[1] = foreign
			if err := write(c, t.Context()); !errors.Is(err, errLost) || s.records[1] != foreign {
				t.Errorf("%v, record %+v; want errLost, and the record as it was", err, s.records[1])
			}
		})
	}
}
