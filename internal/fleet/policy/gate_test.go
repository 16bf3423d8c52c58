package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// throughput returns how many IDs of tags gates together admit in so many seconds, asked every ms.
func throughput(seconds int, gates []*Gate, batch int, tags ...string) (ids int) {
	for now := time.Duration(0); now < time.Duration(seconds)*time.Second; now += time.Millisecond {
		for _, g := range gates {
			for _, tag := range tags {
				if g.Admit(tag, batch, now) == nil {
					ids += batch
				}
			}
		}
	}
	return ids
}

func fleet(workers int, r Rules) (gates []*Gate) {
	for range workers {
		g := new(Gate)
		g.SetWorkers(workers)
		g.Set(r)
		gates = append(gates, g)
	}
	return gates
}

func TestTheFleetIssuesARateAndNotMore(t *testing.T) {
	for _, tc := range []struct {
		rules   Rules
		workers int
		batch   int
		rate    int
	}{
		{Rules{"a": {Rate: 100}}, 1, 1, 100},
		{Rules{"a": {Rate: 100}}, 4, 1, 100},
		{Rules{"a": {Rate: 100}}, 4, 500, 100},
		{Rules{"a": {Rate: 100}, "": {Rate: 50}}, 4, 1, 50},
		{Rules{"a": {Rate: 100}, "": {Rate: 500}}, 4, 1, 100},
		{Rules{"": {Rate: 50}}, 4, 10, 50},
		{Rules{"a": {Rate: 1_000_000_000}}, 3, 1_000_000, 1_000_000_000},
	} {
		t.Run(fmt.Sprintf("%d workers %+v", tc.workers, tc), func(t *testing.T) {
			const seconds = 100
			got := throughput(seconds, fleet(tc.workers, tc.rules), tc.batch, "a")
			if most := tc.rate*(seconds+1) + tc.workers*tc.batch; got > most {
				t.Errorf("%d IDs in %d s, want at most %d", got, seconds, most)
			}
			if least := tc.rate * seconds * 9 / 10; got < least {
				t.Errorf("%d IDs in %d s, want at least %d", got, seconds, least)
			}
		})
	}
}

func TestAThrottleOfEachTagLeavesEachItsOwn(t *testing.T) {
	gates := fleet(2, Rules{"": {Rate: 10}})
	throughput(10, gates, 1, "busy")
	if err := gates[0].Admit("quiet", 1, 10*time.Second); err != nil {
		t.Error("one tag used up another's:", err)
	}
}

func TestTagsWithoutLimitAreFree(t *testing.T) {
	var none *Gate
	zero, limited := new(Gate), new(Gate)
	limited.Set(Rules{"other": {MaxBatch: 1, Rate: 1}})
	for _, g := range []*Gate{none, zero, limited} {
		if got := throughput(1, []*Gate{g}, 1_000_000, "a"); got != 1_000_000_000 {
			t.Errorf("%d IDs of 1000000000", got)
		}
		if n := testing.AllocsPerRun(100, func() { _ = g.Admit("a", 1, 0) }); n != 0 {
			t.Errorf("%v allocations for a tag that is free", n)
		}
	}
}

func TestTheLargestBatchIsKept(t *testing.T) {
	g := new(Gate)
	g.Set(Rules{"a": {MaxBatch: 100}})
	if err := g.Admit("a", 100, 0); err != nil {
		t.Error(err)
	}
	if e, ok := g.Admit("a", 101, 0).(*BatchError); !ok || e.Max != 100 {
		t.Errorf("101 of 100: %v", e)
	}
}

func TestOneRequestShutsATagForAMinuteAtMost(t *testing.T) {
	g := new(Gate)
	g.SetWorkers(2)
	g.Set(Rules{"a": {Rate: 10}, "slow": {Rate: 1}})
	e, ok := g.Admit("a", 100_000, 0).(*BatchError)
	if !ok || e.Max != 300 { // 10/2 a second
		t.Fatalf("100000 at 10/s: %v", e)
	}
	if err := g.Admit("a", e.Max, 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit("a", 1, time.Minute+time.Millisecond); err != nil {
		t.Error("after a minute:", err)
	}
	g.SetWorkers(1000)
	if err := g.Admit("slow", 1, 0); err != nil {
		t.Error("one ID is always small enough:", err)
	}
}

func TestWhoWaitsAsLongAsToldIsAdmitted(t *testing.T) {
	g, now := new(Gate), time.Duration(0)
	g.Set(Rules{"a": {Rate: 7}})
	for range 1000 {
		n := 1 + rand.IntN(30)
		e, ok := g.Admit("a", n, now).(*RateError)
		if !ok {
			continue
		}
		if e.Rate != 7 {
			t.Fatalf("%+v", e)
		}
		if now += e.Wait; g.Admit("a", n, now) != nil {
			t.Fatal("refused after the wait")
		}
	}
}

// An attacker cannot get more by making operators change rules.
func TestNewRulesGiveNoNewBurst(t *testing.T) {
	g := new(Gate)
	got := 0
	for i := range 1000 {
		g.Set(Rules{"a": {Rate: 100}, fmt.Sprint(i): {Rate: 1}, "": {Rate: 1000 + int64(i%2)}})
		got += throughput(1, []*Gate{g}, 1, "a") // always in the same second
	}
	if got > 200+1 {
		t.Errorf("%d IDs in 1 s at 100/s", got)
	}
}
