package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	bwmarrin "github.com/bwmarrin/snowflake"
	"github.com/natsid/natsid/snowflake"
	"github.com/sony/sonyflake/v2"
)

// wideBits is a width of the sequence, per ms, that no generator here can use up.
const wideBits = 20

var wideLayout = snowflake.Layout{Time: 40, Worker: 3, Sequence: wideBits, Epoch: snowflake.LeafEpoch, Unit: 1}

// A nextID returns an ID. It may be called by many goroutines at once.
type nextID func() (int64, error)

// A contender is one line of the generators' table.
type contender struct {
	name       string
	limit      float64 // IDs/s of the layout; 0: more than any can issue
	open       func() (nextID, error)
	goroutines int
	beside     int // index of the contender to compare with
	rates      []float64
	allocs     []float64 // per ID
}

func contenders() (all []*contender) {
	both := func(name string, limit float64, open func() (nextID, error)) {
		for i, n := range []int{1, 64} {
			all = append(all, &contender{
				name: name, limit: limit, open: open, goroutines: n, beside: len(all)/8*8 + i,
			})
		}
	}
	both("natsid Generator.NextAt", 4_096_000, func() (nextID, error) { return natsidGenerator(snowflake.Leaf) })
	both("natsid Issuer.Next", 4_096_000, func() (nextID, error) { return natsidIssuer(snowflake.Leaf) })
	both("bwmarrin Node.Generate", 4_096_000, func() (nextID, error) { return bwmarrinNode(10, 12) })
	both("sonyflake NextID", 25_600, func() (nextID, error) { return sony(sonyflake.Settings{}) })
	both("wide: natsid Generator.NextAt", 0, func() (nextID, error) { return natsidGenerator(wideLayout) })
	both("wide: natsid Issuer.Next", 0, func() (nextID, error) { return natsidIssuer(wideLayout) })
	both("wide: bwmarrin Node.Generate", 0, func() (nextID, error) { return bwmarrinNode(2, wideBits) })
	both("wide: sonyflake NextID", 0, func() (nextID, error) {
		return sony(sonyflake.Settings{
			BitsSequence: wideBits, BitsMachineID: 11,
			TimeUnit: time.Millisecond, StartTime: time.Now().Add(-time.Hour),
		})
	})
	return append(all, &contender{
		name: "time given: natsid Generator.NextAt", open: natsidTimeGiven, goroutines: 1, beside: 8,
	})
}

func newGenerator(l snowflake.Layout) (*snowflake.Generator, error) {
	now := time.Now()
	return snowflake.NewGenerator(l, 1, now.UnixMilli(), now.Add(time.Hour).UnixMilli(), snowflake.DefaultMaxAhead)
}

func natsidGenerator(l snowflake.Layout) (nextID, error) {
	g, err := newGenerator(l)
	return func() (int64, error) {
		for {
			runs, err := g.NextAt(time.Now().UnixMilli(), 1)
			if _, behind := errors.AsType[*snowflake.BehindError](err); !behind {
				return first(runs), err
			}
			time.Sleep(time.Millisecond) // no longer, since the reading may have been old
		}
	}, err
}

func natsidIssuer(l snowflake.Layout) (nextID, error) {
	g, err := newGenerator(l)
	i := snowflake.NewIssuer(time.Second, 64, func() int64 { return time.Now().UnixMilli() })
	i.Use(g)
	return func() (int64, error) {
		runs, err := i.Next(1)
		if errors.Is(err, snowflake.ErrWait) {
			runs, err = park(i)
		}
		return first(runs), err
	}, err
}

func park(i *snowflake.Issuer) (runs snowflake.Runs, err error) {
	done := make(chan bool)
	parked := i.Park(1, func(r snowflake.Runs, e error) {
		runs, err = r, e
		close(done)
	})
	if parked != nil {
		return runs, parked
	}
	<-done
	return runs, err
}

// natsidTimeGiven is computation alone: the clock keeps pace with the IDs.
func natsidTimeGiven() (nextID, error) {
	g, err := newGenerator(snowflake.Leaf)
	now, n := time.Now().UnixMilli(), 0
	return func() (int64, error) {
		if n++; n%4096 == 0 {
			now++
		}
		runs, err := g.NextAt(now, 1)
		return first(runs), err
	}, err
}

func first(r snowflake.Runs) int64 {
	for id := range r.All() {
		return id
	}
	return 0
}

func bwmarrinNode(nodeBits, stepBits uint8) (nextID, error) {
	bwmarrin.NodeBits, bwmarrin.StepBits = nodeBits, stepBits // read by NewNode
	node, err := bwmarrin.NewNode(1)
	return func() (int64, error) { return node.Generate().Int64(), nil }, err
}

func sony(s sonyflake.Settings) (nextID, error) {
	s.MachineID = func() (int, error) { return 1, nil }
	sf, err := sonyflake.New(s)
	if err != nil {
		return nil, err
	}
	return sf.NextID, nil
}

// compareGenerators measures and prints.
func compareGenerators(ctx context.Context, opt options) error {
	all := contenders()
	fmt.Fprintln(os.Stderr, "measuring for", time.Duration((opt.repeats+1)*len(all))*opt.length)
	for round := range opt.repeats + 1 {
		for _, c := range all {
			rate, allocs, err := c.measure(opt.length)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				c.rates, c.allocs = append(c.rates, rate), append(c.allocs, allocs)
			}
		}
	}
	printGenerators(os.Stdout, opt, all)
	return nil
}

// measure takes IDs from a new generator for length. The IDs of a goroutine must rise.
func (c *contender) measure(length time.Duration) (rate, allocs float64, err error) {
	next, err := c.open()
	if err != nil {
		return 0, 0, err
	}
	var (
		stop          atomic.Bool
		all           sync.WaitGroup
		mu            sync.Mutex
		ids           int
		before, after runtime.MemStats
	)
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range c.goroutines {
		all.Go(func() {
			n, failure := takeUntil(&stop, next)
			mu.Lock()
			defer mu.Unlock()
			ids += n
			err = errors.Join(err, failure)
		})
	}
	time.Sleep(length)
	stop.Store(true)
	all.Wait()
	lasted := time.Since(began)
	runtime.ReadMemStats(&after)
	return float64(ids) / lasted.Seconds(), float64(after.Mallocs-before.Mallocs) / float64(ids), err
}

// takeUntil takes IDs until stop is set, and returns how many.
func takeUntil(stop *atomic.Bool, next nextID) (n int, err error) {
	for last := int64(0); !stop.Load(); n++ {
		id, err := next()
		if err != nil {
			return n, err
		}
		if id <= last {
			return n, fmt.Errorf("ID %d after %d", id, last)
		}
		last = id
	}
	return n, nil
}

func printGenerators(w io.Writer, opt options, all []*contender) {
	fmt.Fprintf(w, "Generators in one process, %d repeats of %v; %s%s.\n", opt.repeats, opt.length,
		machine(), versions("bwmarrin", "sonyflake"))
	fmt.Fprint(w, `Medians. /natsid = ratio to Generator.NextAt beside it, within a repeat: median (least-greatest).
The limit of each is its layout's: 4096 IDs per ms for natsid and bwmarrin, 256 per 10 ms for sonyflake. At the limit
natsid asks its caller to wait, bwmarrin spins and sonyflake sleeps, both inside their lock. More than 100%: the first
burst. Allocations are those of waiting.
wide = 20 bits of sequence per ms for all, so that no layout limits. time given = without reading the clock.

`)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "generator\tgoroutines\tIDs/s\tof its limit\t/natsid\tns/ID\tallocs/ID\t")
	for _, c := range all {
		rate, share := median(c.rates), "-"
		if c.limit > 0 {
			share = fmt.Sprintf("%.1f%%", 100*rate/c.limit)
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%s\t%s\t%.1f\t%.3f\t\n", c.name, c.goroutines, rate, share,
			ratios(c.rates, all[c.beside].rates), 1e9/rate, median(c.allocs))
	}
	t.Flush()
}

// versions returns the versions of the modules whose paths contain one of the names.
func versions(names ...string) (list string) {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		for _, name := range names {
			if strings.Contains(dep.Path, name) {
				list += ", " + dep.Path + " " + dep.Version
			}
		}
	}
	return list
}
