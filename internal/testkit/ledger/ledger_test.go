package ledger_test

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/natsid/natsid/internal/testkit/ledger"
)

const top = math.MaxInt64

func TestRepeatsAreCountedUpToTheHighestNumber(t *testing.T) {
	for _, tc := range []struct {
		law      string
		runs     []ledger.Run
		ids      int64
		repeats  int64
		examples []ledger.Run
	}{
		{"the highest", []ledger.Run{{top, top}, {top - 1, top}, {1, 1}}, 4, 1, []ledger.Run{{top, top}}},
		{"both at once", []ledger.Run{{top, top}, {1, 1}}, 2, 0, nil},
		{"all there are", []ledger.Run{{1, top}}, top, 0, nil},
		{"counts stop at the highest number", []ledger.Run{{1, top}, {1, top}, {1, top}}, top, top,
			[]ledger.Run{{1, top}}},
	} {
		t.Run(tc.law, func(t *testing.T) {
			for _, chunk := range []int{1, 2, 1000} { // all on disk, some, none
				got := report(t, ledger.NewOf(t.TempDir(), chunk), tc.runs)
				if got.IDs != tc.ids || got.Repeats != tc.repeats || !slices.Equal(sorted(got.Examples), tc.examples) {
					t.Errorf("in chunks of %d: %+v", chunk, got)
				}
			}
		})
	}
}

// The other implementation has a map, and counts each ID by itself.
func TestRandomRunsAreCountedAsAMapCountsThem(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		offset := []int64{0, 1 << 40, top - 5000}[r.IntN(3)]
		spread, long := 1+r.Int64N(4500), 1+r.Int64N(80)
		var runs []ledger.Run
		for range r.IntN(400) {
			first := 1 + offset + r.Int64N(spread)
			runs = append(runs, ledger.Run{First: first, Last: first + r.Int64N(long)})
		}
		want := map[int64]int64{}
		var ids, repeats int64
		for _, run := range runs {
			for id := run.First; id <= run.Last; id++ {
				want[id]++
				ids++
			}
		}
		for _, n := range want {
			repeats += n - 1
		}
		chunk := 1 + r.IntN(60)
		got := report(t, ledger.NewOf(t.TempDir(), chunk), runs)
		if got.IDs != ids || got.Repeats != repeats {
			t.Fatalf("seed %d, chunks of %d: %+v, want %d IDs and %d repeats", seed, chunk, got, ids, repeats)
		}
		if len(got.Examples) > 10 || (repeats > 0) != (len(got.Examples) > 0) {
			t.Errorf("seed %d: %d repeats, examples %v", seed, repeats, got.Examples)
		}
		for _, e := range got.Examples {
			for id := e.First; id <= e.Last; id++ {
				if want[id] < 2 {
					t.Errorf("seed %d: %d is an example and came %d times", seed, id, want[id])
				}
			}
		}
	}
}

func TestWhatIsNoRunIsRefusedAndChangesNothing(t *testing.T) {
	l := ledger.New(t.TempDir())
	for _, r := range []ledger.Run{{0, 0}, {0, 5}, {-3, 5}, {-3, -1}, {6, 5}, {math.MinInt64, top}} {
		if err := l.Add(r.First, r.Last); !errors.Is(err, ledger.ErrRun) {
			t.Errorf("%v: %v, want ErrRun", r, err)
		}
	}
	if got := report(t, l, nil); got.IDs != 0 || got.Repeats != 0 {
		t.Errorf("%+v", got)
	}
}

// A proof that rests on a disk which forgot a part would be none.
func TestADiskThatFailsIsNoReport(t *testing.T) {
	fill := func(l *ledger.Ledger) (err error) {
		for i := int64(0); i < 1000 && err == nil; i++ {
			err = l.Add(1+i*3, 1+i*3)
		}
		return err
	}
	for law, tc := range map[string]struct {
		dir  string
		harm func(*os.File) error
		want error
	}{
		"no directory": {"missing", nil, os.ErrNotExist},
		"read only":    {"", func(f *os.File) error { return f.Close() }, os.ErrClosed},
		"cut short":    {"", func(f *os.File) error { return f.Truncate(300) }, nil},
		// The first section is ten bytes, each of them a run: a gap of 3, doubled.
		"a run gone":    {"", overwrite(3, 0), nil},
		"two made one":  {"", overwrite(3, 3), nil},
		"half a run":    {"", overwrite(9, 3), nil},
		"half a number": {"", overwrite(9, 255), nil},
	} {
		t.Run(law, func(t *testing.T) {
			l := ledger.NewOf(t.TempDir()+"/"+tc.dir, 10)
			err := fill(l)
			if tc.harm != nil {
				if err != nil {
					t.Fatal(err)
				}
				if err := tc.harm(l.File()); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, tc.want) || !errors.Is(l.Add(7, 7), tc.want) {
				t.Errorf("Add: %v, want %v from now on", err, tc.want)
			}
			_, err = l.Close()
			_, again := l.Close()
			wrong := tc.want != nil && !errors.Is(err, tc.want) || errors.Is(err, io.EOF)
			if err == nil || again != err || wrong {
				t.Errorf("Close: %v, then %v", err, again)
			}
		})
	}
}

func overwrite(at int64, with byte) func(*os.File) error {
	return func(f *os.File) error { _, err := f.WriteAt([]byte{with}, at); return err }
}

// report adds the runs, closes the ledger and returns what it found.
func report(t *testing.T, l *ledger.Ledger, runs []ledger.Run) ledger.Report {
	t.Helper()
	for _, r := range runs {
		if err := l.Add(r.First, r.Last); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.Close()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func sorted(runs []ledger.Run) []ledger.Run {
	slices.SortFunc(runs, func(a, b ledger.Run) int { return int(min(1, max(-1, a.First-b.First))) })
	return runs
}
