package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// stuck is a table in which rows whose names begin with "locked" cannot be raised, and which may take no writes at all.
type stuck struct {
	*segmenttest.Table
	readOnly bool
	writes   atomic.Int64
}

func (s *stuck) Advance(ctx context.Context, tag string, start, end int64) (bool, error) {
	s.writes.Add(1)
	if s.readOnly {
		return false, segment.ErrNoWrites
	}
	if strings.HasPrefix(tag, "locked") {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.Table.Advance(ctx, tag, start, end)
}

// behind returns a table with so many rows that are locked and so many that are not, all below their marks.
func behind(t *testing.T, locked, free int) (*stuck, *memory) {
	table, marks := new(segmenttest.Table), new(memory)
	g := beside(table, marks)
	for i := range locked + free {
		name := fmt.Sprint("locked", i)
		if i >= locked {
			name = fmt.Sprint("z", i)
		}
		create(t, g, segment.Tag{Name: name, Step: 10, MaxID: 1})
	}
	old := table.Snapshot()
	for name := range old {
		if _, err := g.Load(t.Context(), name, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	table.Restore(old)
	return &stuck{Table: table}, marks
}

func TestLockedRowsDoNotKeepThePollFromLiftingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locked, free = 300, 1000
		table, marks := behind(t, locked, free)
		g := beside(table, marks)
		for poll := range 100 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := g.Poll(ctx, func(segment.Listing) {})
			cancel()
			if d := time.Since(began); err == nil || len(err.Error()) > 2000 || d > time.Minute {
				t.Errorf("after %v an error of %d bytes", d, len(fmt.Sprint(err)))
			}
			lifted := 0
			for name, row := range table.Snapshot() {
				if !strings.HasPrefix(name, "locked") && row.MaxID == 11 {
					lifted++
				}
			}
			if lifted == free {
				return
			}
			if poll == 99 {
				t.Errorf("after %d polls %d of %d rows are lifted", poll+1, lifted, free)
			}
		}
	})
}

func TestAPollAsksATableThatTakesNoWritesOnce(t *testing.T) {
	table, marks := behind(t, 0, 1000)
	table.readOnly = true
	err := beside(table, marks).Poll(t.Context(), func(segment.Listing) {})
	if n := table.writes.Load(); !errors.Is(err, segment.ErrNoWrites) || n > 8 || len(err.Error()) > 2000 {
		t.Errorf("%d writes were tried, and then %v", n, err)
	}
}

func TestATablesLossOfOurLastLoadAloneRaisesTheAlarm(t *testing.T) {
	for how, look := range map[string]func(g *kvstore.Store) error{
		"a load": func(g *kvstore.Store) error { _, err := g.Load(t.Context(), "a", 0, 0); return err },
		"a poll": func(g *kvstore.Store) error { return g.Poll(t.Context(), func(segment.Listing) {}) },
	} {
		var alarms []string
		g, table, _ := guarded(t, &alarms)
		load(t, g)
		old := table.Snapshot()
		load(t, g)
		table.Restore(old)
		for range 3 {
			if err := look(g); err != nil {
				t.Fatal(err)
			}
		}
		if len(alarms) != 1 || !strings.Contains(alarms[0], "max_id is 101 and was 201") {
			t.Errorf("%s: alarms %q, want one", how, alarms)
		}
		load(t, g)
		table.Restore(old)
		if err := look(g); err != nil || len(alarms) != 2 {
			t.Errorf("%s, after another loss: %v, alarms %q, want two", how, err, alarms)
		}
	}
}

func TestARowThatIsLoadedWhileAPollReadsItHasNotGoneBack(t *testing.T) {
	var alarms []string
	_, table, marks := guarded(t, nil)
	between := &interrupted{Table: table}
	g := watched(between, marks, func(_, message string) { alarms = append(alarms, message) })
	between.read = func() { load(t, g) }
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil || len(alarms) > 0 {
		t.Errorf("%v, alarms %q", err, alarms)
	}
}

func TestAPollLowersNoMark(t *testing.T) {
	_, table, marks := guarded(t, nil)
	away := beside(&stubborn{Table: table, update: errLost}, marks)
	if _, err := away.Update(t.Context(), "a", segment.Change{MaxID: 5000}); !errors.Is(err, segment.ErrUncertain) {
		t.Fatal(err)
	}
	leaf := table.LoadAsLeaf("a") // above seen, below the mark
	if err := beside(table, marks).Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	if m := marks.mark("a"); m.Mark != 5000 || m.Seen != leaf.End {
		t.Errorf("the mark is %+v, but Leaf took %v", m, leaf)
	}
}
