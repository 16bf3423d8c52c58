package workerid

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// The clock may have been set back since the window passed: nothing else keeps the new window off the IDs of the old.
func TestANumberIsAcquiredAgainFromTheEndOfItsOldGeneratorOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		last := opened(t, of)
		if _, err := last.gen.NextAt(last.from+50_000, 1); err != nil {
			t.Fatal(err)
		}
		h := newChooser(s, of)
		h.founder.deployment, h.ended = ofStub(), last
		c, err := h.reacquire(t.Context(), reading{now: last.from, at: time.Now()}, view{records: s.records})
		if err != nil || c == nil || c.number != last.number || c.from <= last.from+50_000 {
			t.Errorf("%+v, %v, want number %d from after %d on", c, err, last.number, last.from+50_000)
		}
	})
}

// Two processes may have one name, and one process is asked for the number that it answers for.
func TestAnAnswerIsTheOwnOneByItsProcessNotByItsName(t *testing.T) {
	s, of := newStub()
	h := newChooser(s, of)
	for who, want := range map[Who]error{
		{Instance: "me", Process: "q"}:    errTaken,
		{Instance: "other", Process: "p"}: nil,
	} {
		s.answers[1] = who
		if err := h.ask(t.Context(), h.claimOn(1, 0)); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", who, err, want)
		}
	}
}

// A restored record looks free from a time on that the released claim of this worker has passed.
func TestANumberThatWasReleasedIsAcquiredFromItsLastIDOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := newStub()
		of.file = newFile(t, t.TempDir())
		last := opened(t, of)
		if _, err := last.gen.NextAt(last.from+2000, 1); err != nil {
			t.Fatal(err)
		}
		if err := last.release(t.Context()); err != nil {
			t.Fatal(err)
		}
		restored := Record{Token: "older", Until: last.from - 5, Deployment: ofStub(), Revision: 1}
		s.records[1] = restored
		h := newChooser(s, of)
		h.founder.deployment = ofStub()
		c, err := h.acquire(t.Context(), reading{now: last.from, at: time.Now()}, 1, restored)
		if err != nil || c.from <= last.from+2000 {
			t.Errorf("%+v, %v, want a window after %d", c, err, last.from+2000)
		}
	})
}

// An undeployed registry fails to return its deployment.
type undeployed struct {
	*stub
	err error
}

func (u undeployed) Deployment(context.Context) (Deployment, error) { return Deployment{}, u.err }

// A claim issues nothing before its record was read again, unless it was resumed while the registry is out of reach.
// A registry that answers and refuses is not out of reach.
func TestOnlyAClaimResumedWithoutTheRegistryIssuesBeforeItsRecordIsReadAgain(t *testing.T) {
	uncompared := func(h *holder) { h.beatUncompared(context.Background(), reading{}, errInjected) }
	unread := func(h *holder) { _, _ = h.renewAndReport(context.Background(), false) }
	for _, c := range []struct {
		name        string
		resumedAway bool
		err         error
		beat        func(*holder)
		want        bool
	}{
		{"acquired, no clock", false, errInjected, uncompared, false},
		{"acquired, no record", false, errInjected, unread, false},
		{"resumed, no clock", true, errInjected, uncompared, true},
		{"resumed, no record", true, errInjected, unread, true},
		{"resumed, refused", true, ErrDamaged, unread, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, of := newStub()
			claim := opened(t, of)
			claim.registry, claim.resumedAway = undeployed{s, c.err}, c.resumedAway
			k := New(Config{Registry: s, Layout: small, Now: wallClock, Use: func(*snowflake.Generator) {}})
			c.beat(k.holder(claim))
			if claim.rechecked != c.want {
				t.Errorf("it may issue: %t, want %t", claim.rechecked, c.want)
			}
		})
	}
}
