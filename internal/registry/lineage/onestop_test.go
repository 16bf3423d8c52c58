package lineage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// calm returns a world in which nothing fails and one acts at a time, and three of its workers.
func calm(seed uint64) (w *world, a, b, c *proc) {
	w = newWorld(seed, options{noFaults: true}, nil)
	w.quiet, w.depth = true, 3
	return w, w.procs[0], w.procs[1], w.procs[2]
}

// stopped lets workers check until each knows of a restore.
func (w *world) stopped(workers ...*proc) {
	for range 3 {
		for _, p := range workers {
			w.now += time.Second
			_ = p.check(context.Background(), true)
		}
	}
}

// wantStops checks that there were n incidents, and no breach.
func (w *world) wantStops(t *testing.T, n int) {
	t.Helper()
	if w.incidents != n || w.breach != nil {
		t.Errorf("%d stops, want %d; %v", w.incidents, n, w.breach)
	}
}

// sound lets workers check until each finds the registry sound.
func (w *world) sound(t *testing.T, workers ...*proc) {
	t.Helper()
	for _, p := range workers {
		var err error
		for range 10 {
			w.now += time.Second
			if err = p.check(context.Background(), true); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
}

// resumed lets workers stop, and an operator resume.
func (w *world) resumed(t *testing.T, workers ...*proc) {
	t.Helper()
	w.stopped(workers...)
	o := w.newOp(0)
	if w.tight {
		o.bump = tight
	}
	for o.step(context.Background()) {
		w.now += time.Second
	}
	if o.next != 3 {
		t.Fatalf("the resume ended at step %d", o.next)
	}
}

// The chain of a restored registry lacks the eras since the backup. Who returns from one of them, of which a prover
// knew, opens no incident.
func TestOneStopForEachRestore(t *testing.T) {
	w, a, b, c := calm(1)
	w.sound(t, a, b, c)
	backup := w.save()
	w.sound(t, a, b, c)
	w.bring(*backup)
	w.resumed(t, a, b)
	w.sound(t, a, b)
	b.die()
	w.bring(*backup)
	w.resumed(t, a)
	b.start()
	w.sound(t, a, b, c)
	w.wantStops(t, 2)
}

// Two workers that were stopped when the same backup was restored again prove one set-back.
func TestOneStopWhereSeveralProve(t *testing.T) {
	w, a, b, c := calm(1)
	w.sound(t, a, b, c)
	backup := w.save()
	w.sound(t, a, b, c)
	w.bring(*backup)
	w.stopped(a, b, c)
	w.bring(*backup)
	w.resumed(t, a, b, c)
	w.sound(t, a, b, c)
	w.wantStops(t, 2)
}

// The journal then knows higher revisions than the registry has, and the era that began with them.
func TestNoStopWhereACrashInterruptsARenewal(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	backup := w.save()
	for range 20 {
		w.sound(t, a, b)
	}
	a.die()
	w.bring(*backup)
	w.resumed(t, b)
	w.sound(t, b)
	a.start()
	from := len(a.disk.past)
	w.sound(t, a)
	a.die()
	a.disk.data[journalName] = a.disk.past[from] // written before the first own key of the era
	a.start()
	w.sound(t, a)
	w.wantStops(t, 1)
}

// The journal then names a write that is no longer the last one, whichever write the disk did not take.
func TestNoStopWhereTheDiskHung(t *testing.T) {
	for writes := 0; ; writes++ {
		w, a, _, _ := calm(uint64(writes))
		w.sound(t, a)
		a.disk.left = 1 + writes
		w.sound(t, a, a, a, a)
		if !a.disk.hangs {
			if writes < 4 {
				t.Errorf("the disk was written %d times", writes)
			}
			return
		}
		a.die()
		a.start()
		w.sound(t, a, a)
		if w.incidents != 0 || w.breach != nil {
			t.Errorf("after %d writes: %d stops without a restore, %v", writes, w.incidents, w.breach)
		}
	}
}

// onAnnounce is a bus that calls f with each announcement.
type onAnnounce struct {
	Bus
	f func()
}

func (b onAnnounce) Announce([]byte) error { b.f(); return nil }

// The identity is restored between a prover's write of it and that of the prover's own key. So the open incident is the
// one that it has joined, and lacks the era that it knows.
func TestAStopDoesNotLoseWhatItsProverKnows(t *testing.T) {
	w, a, b, c := calm(1)
	w.sound(t, a, b, c)
	backup := w.save()
	w.sound(t, a, b, c)
	c.deaf = true
	w.bring(*backup)
	w.resumed(t, a, b)
	w.sound(t, a, b)
	w.bring(*backup)
	c.deaf, b.deaf = false, true
	_ = c.check(context.Background(), true)
	stopped := w.save()
	b.deaf = false
	b.member.cfg.Bus = onAnnounce{b.member.cfg.Bus, func() { w.bring(*stopped) }}
	_ = b.check(context.Background(), true)
	b.member.cfg.Bus = onAnnounce{b.member.cfg.Bus, func() {}}
	_ = b.check(context.Background(), true)
	if id, err := w.identity(); err != nil || !id.Knowing(nil).Offsets.Has(b.member.own.Eras) {
		t.Errorf("the identity is %+v, %v, and the prover knows %v", id, err, b.member.own.Eras)
	}
}

// Whatever its journal says of why it was stopped.
func TestALifeThatBeginsInAnIncidentIsStopped(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	b.member.WentBack("told", 0)
	_ = b.check(context.Background(), false)
	_ = a.check(context.Background(), false)
	a.die()
	a.start()
	a.member.own.Stop = ""
	err := a.check(context.Background(), false)
	if _, isOpen, why := a.member.passes(a.member.doubted()); !errors.Is(err, ErrStopped) || isOpen || why == nil {
		t.Errorf("its check ends with %v, and it is stopped for %v", err, why)
	}
	w.resumed(t, a, b)
	w.sound(t, a, b)
}

// It may be of a worker that is away for long, and then knows none of the tokens that its key names.
func TestAKeyOfADataDirectoryIsNotTakenOver(t *testing.T) {
	w := newWorld(1, options{noFaults: true, volatile: 1}, nil)
	w.quiet, w.depth = true, 3
	volatile, a := w.procs[0], w.procs[1]
	w.sound(t, a)
	a.die()
	w.now += 2 * silence
	w.sound(t, volatile)
	if volatile.member.own.Key == a.member.own.Key {
		t.Error("it was taken over")
	}
}

// racedTags lacks an entry until this worker restores it: by then another one has written it, at a lower floor.
type racedTags struct {
	Tags
	restored bool
}

func (r *racedTags) Restore(ctx context.Context, floors map[string]segment.Floor) error {
	r.restored = true
	return r.Tags.Restore(ctx, floors)
}

func (r *racedTags) Low(context.Context, map[string]segment.Floor) (int64, string, error) {
	if r.restored {
		return 95_200, "a mark is below its floor", nil
	}
	return 0, "", nil
}

// Otherwise a resume with the bump 0 begins below that floor, and the worker stops the registry again.
func TestAJoinCountsWhatAnotherRestoredLower(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	b.member.cfg.Tags = &racedTags{Tags: b.member.cfg.Tags}
	a.member.WentBack("told", 0)
	_ = a.check(context.Background(), false)
	_ = b.check(context.Background(), false)
	if k := b.member.own; k.Incident == "" || k.need != 95_200 {
		t.Errorf("it joined the incident %q with the need %d, want 95200", k.Incident, k.need)
	}
}

// silentTags lists no tags in time, so a renewal does not end.
type silentTags struct{ Tags }

func (silentTags) Low(context.Context, map[string]segment.Floor) (int64, string, error) {
	return 0, "", context.DeadlineExceeded
}

// It knows the identity of the new era by then, and revisions of the former one only.
func TestNoStopWhereAWorkerAnnouncesWhileItsRenewalHangs(t *testing.T) {
	w, a, b, c := calm(1)
	w.procs[3].die()
	w.sound(t, a, b, c)
	backup := w.save()
	for range 20 {
		w.sound(t, a, b, c)
	}
	c.deaf = true
	w.bring(*backup)
	w.resumed(t, a, b)
	w.sound(t, a, b)
	c.floor[loose] = segment.Floor{End: 1}
	c.deaf, c.member.cfg.Tags = false, silentTags{c.member.cfg.Tags}
	if err := c.check(context.Background(), true); err == nil {
		t.Fatal("its renewal ended")
	}
	for range 20 {
		c.member.announceIfDue()
		w.now += time.Second
	}
	w.sound(t, a, b)
	w.wantStops(t, 1)
}

// A backup that was made while the registry was stopped has the incident open that has ended since.
func TestOneMoreStopWhereABackupOfAStopIsRestored(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	backup := w.save()
	w.sound(t, a, b)
	w.bring(*backup)
	w.stopped(a, b)
	stopped := w.save()
	w.resumed(t, a, b)
	w.sound(t, a, b)
	w.bring(*stopped)
	w.resumed(t, a, b)
	w.sound(t, a, b)
	w.wantStops(t, 2)
}

// A worker of an older version leaves alone what it does not know.
func TestAnIdentityOfANewerNatsidIsLeftAlone(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a)
	newer := []byte(`{"version":3,"registry":["R"],"kind":"kv"}`)
	w.bkt, _ = w.bkt.with(era.Key, newer, w.now)
	for _, p := range []*proc{a, b} {
		if err := p.member.checkOnce(context.Background(), true); !errors.Is(err, era.ErrNewer) {
			t.Errorf("%v, want ErrNewer", err)
		}
	}
	o := w.newOp(0)
	if err := o.o.look(context.Background()); !errors.Is(err, era.ErrNewer) {
		t.Errorf("the operator's command: %v, want ErrNewer", err)
	}
	if now := w.bkt.entries[era.Key].Value; string(now) != string(newer) {
		t.Errorf("the identity is %s now", now)
	}
}

func TestWorkersOfTwoKindsDoNotShareMarks(t *testing.T) {
	w, p, _, _ := calm(1)
	w.sound(t, p)
	id := p.member.Identity()
	id.Kind = era.Guarded
	w.bkt, _ = w.bkt.with(era.Key, id.Encode(), w.now)
	p.member.Doubt()
	for what, err := range map[string]error{
		"a load": p.member.Ready(context.Background()), "the start": p.member.Fits(context.Background()),
	} {
		if !errors.Is(err, era.ErrKind) || !strings.Contains(err.Error(), "start it with --mysql") {
			t.Errorf("%s: %v, want ErrKind", what, err)
		}
	}
}

// Each worker checks within seconds, and says in its own key by how much marks are below what it has loaded.
func TestAnOperatorWaitsUntilEachWorkerHasChecked(t *testing.T) {
	w, a, _, _ := calm(1)
	w.sound(t, a)
	backup := w.save()
	w.sound(t, a)
	w.bring(*backup)
	_ = a.check(context.Background(), true)
	o := w.newOp(0).o
	if err := o.look(context.Background()); err != nil {
		t.Fatal(err)
	}
	for until := w.now + joining; w.now < until; w.now += time.Second {
		if o.resume(context.Background(), 1, 0) == nil {
			t.Fatal("it went on at once")
		}
	}
	if err := o.resume(context.Background(), 1, 0); err != nil {
		t.Error(err)
	}
}

// What the entry of an own key shows, by its token and revision.
func TestAnOwnKeyOfAnotherHistoryIsAReasonToStop(t *testing.T) {
	m := memory{Written: written{Token: "last", Revision: 5}, Flight: flight{Token: "flight", Highest: 10}}
	for name, tc := range map[string]struct {
		token    string // "" for no entry
		revision uint64
		want     ownership
	}{
		"the last write":                            {"last", 5, mine},
		"the last write, put back":                  {"last", 12, foreign},
		"the write under way":                       {"flight", 11, landed},
		"it, below what was known when it was sent": {"flight", 9, foreign},
		"an earlier write":                          {"earlier", 4, foreign},
		"a later one":                               {"later", 20, foreign},
		"none":                                      {"", 0, foreign},
	} {
		var o *ownEntry
		if tc.token != "" {
			o = &ownEntry{Version: Version, Token: tc.token}
		}
		if got := m.own(o, tc.revision); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	first := memory{Flight: flight{Token: "flight", Highest: 10}}
	if got := first.own(&ownEntry{Token: "other"}, 20); got != unwritten {
		t.Errorf("another one's entry before the first write: %v", got)
	}
}
