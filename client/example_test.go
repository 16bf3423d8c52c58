package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

var (
	examples = new(exampletb.T)
	// natsid starts the worker that answers the examples, once. It creates tags
	// on first use, which workers do not by default.
	natsid = sync.OnceValue(func() *e2e.Cluster { return e2e.Start(examples) })
)

func Example() {
	nc, err := nats.Connect(natsid().URL) // such as nats.DefaultURL
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	ids := client.New(nc)

	ctx := context.Background()
	for range 2 {
		id, err := ids.Segment("order").Next(ctx)
		fmt.Println(id, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
}

// A batch arrives as runs of consecutive IDs.
func ExampleHandle_NextN() {
	ids := client.New(natsid().Conn)
	runs, err := ids.Segment("invoice").NextN(context.Background(), 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range runs {
		for id := r.First; id <= r.Last; id++ {
			fmt.Println(id)
		}
	}
	// Output:
	// 1
	// 2
	// 3
}

// A snowflake carries the time and the worker number that issued it.
func ExampleClient_Snowflake() {
	ids := client.New(natsid().Conn)
	id, err := ids.Snowflake().Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := snowflake.Leaf.Decode(int64(id))
	fmt.Println(p.Worker == natsid().WorkerNumber(0), err)
	// Output: true <nil>
}

// Unless workers create tags on first use, a tag is created before it is used.
func ExampleClient_CreateTag() {
	ids := client.New(natsid().Conn)
	ctx := context.Background()
	tag, err := ids.CreateTag(ctx, subjects.TagCreate{Tag: "user", Step: 5000, Start: 1_000_001})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tag.Tag, tag.Step)
	fmt.Println(ids.Segment(tag.Tag).Next(ctx))
	// Output:
	// user 5000
	// 1000001 <nil>
}

// What is nil stays as it is. max_id only rises: here 1000 IDs are skipped.
func ExampleClient_UpdateTag() {
	ids := client.New(natsid().Conn)
	ctx := context.Background()
	before, err := ids.CreateTag(ctx, subjects.TagCreate{Tag: "ticket"})
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := ids.UpdateTag(ctx, subjects.TagUpdate{Tag: "ticket", RaiseBy: new(subjects.Decimal(1000))})
	fmt.Println(before.MaxID, after.MaxID, err)
	// Output: 1 1001 <nil>
}

// The code of a refusal says what to do, its text what was wrong.
func ExampleHandle_NextN_refused() {
	ids := client.New(natsid().Conn)
	_, err := ids.Segment("order").NextN(context.Background(), 1_000_000)
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		fmt.Println(e.Code, e.Code.Retry())
		fmt.Println(e.Text)
	}
	// Output:
	// 400 false
	// the body is "1000000", want empty for one ID or a decimal 1..100000 without leading zero
}

// Without a worker NATS answers at once.
func ExampleErrNotServed() {
	ids := client.New(natsid().Conn, client.Namespace("elsewhere"))
	_, err := ids.Snowflake().Next(context.Background())
	fmt.Println(errors.Is(err, client.ErrNotServed))
	// Output: true
}
