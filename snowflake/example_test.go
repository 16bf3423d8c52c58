package snowflake_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/snowflake"
)

func ExampleParseLayout() {
	for _, s := range []string{"leaf", "41+10+12", "39+2+7+4+7@10ms", "41+10+13"} {
		l, err := snowflake.ParseLayout(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: %d workers, %d IDs a tick of %d ms, until %d\n",
			l, l.Workers(), l.PerTick(), l.Unit, l.Ends().Year())
	}
	// Output:
	// 41+10+12: 1024 workers, 4096 IDs a tick of 1 ms, until 2080
	// 41+10+12: 1024 workers, 4096 IDs a tick of 1 ms, until 2080
	// 39+2+7+4+7@10ms: 512 workers, 128 IDs a tick of 10 ms, until 2185
	// snowflake: layout 41+10+13: 64 bits, want at most 63
}

func ExampleLayout_Decode() {
	p, err := snowflake.Leaf.Decode(1794212362199207967)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Time.Format(time.RFC3339Nano), "worker", p.Worker, "sequence", p.Sequence)
	_, err = snowflake.Leaf.Decode(-1)
	fmt.Println(err)
	// Output:
	// 2024-05-25T03:42:16.658Z worker 1017 sequence 31
	// snowflake: -1 is not an ID of layout 41+10+12
}

func ExampleGenerator() {
	l := snowflake.Leaf
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()
	// This process alone has worker number 7 for the next minute.
	g, err := snowflake.NewGenerator(l, 7, now, now+60_000, snowflake.DefaultMaxAhead)
	if err != nil {
		fmt.Println(err)
		return
	}
	runs, err := g.NextAt(now, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for first, last := range runs.All() {
		a, _ := l.Decode(first)
		fmt.Println(last-first+1, "IDs of worker", a.Worker, "in the tick of", a.Time.Format(time.TimeOnly))
	}
	_, err = g.NextAt(now+60_000, 1)
	fmt.Println(errors.Is(err, snowflake.ErrWindow))
	_, err = g.NextAt(now-1000, 1)
	if behind, ok := errors.AsType[*snowflake.BehindError](err); ok {
		fmt.Println("wait", behind.By)
	}
	g.Close()
	fmt.Println(g.CheckAt(now))
	// Output:
	// 10 IDs of worker 7 in the tick of 03:04:05
	// true
	// wait 995ms
	// snowflake: the generator is closed
}
