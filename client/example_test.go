package client_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
	natsid = sync.OnceValue(func() *e2e.Cluster { return e2e.Start(examples, e2e.Config{}) })
)

func Example() {
	nc, err := nats.Connect(natsid().URL) // such as nats.DefaultURL
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	ids, err := client.New(nc, client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ids.Close()

	order, err := ids.Segment("order", client.SegmentConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := order.Next(context.Background()) // 5 s at most
	fmt.Println(id, err)
	// Output: 1 <nil>
}

// A client of another namespace, which logs its troubles, and gives up earlier
// where a context has no deadline.
func ExampleNew() {
	ids, err := client.New(natsid().Conn, client.Config{
		Namespace: "shop", Log: slog.Default(), Timeout: 2 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ids.Close()

	_, err = ids.ListTags(context.Background(), subjects.TagList{}) // not repeated, so it fails at once
	fmt.Println(errors.Is(err, client.ErrNotServed))
	// Output: true
}

// Calls that overlap share requests, so a handle is kept and shared.
func ExampleHandle_Next() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	guest := client.Must(ids.Segment("guest", client.SegmentConfig{}))

	var wg sync.WaitGroup
	var seen sync.Map
	for range 1000 {
		wg.Go(func() {
			id, err := guest.Next(context.Background())
			if err != nil {
				fmt.Println(err)
			}
			if _, twice := seen.LoadOrStore(id, true); twice {
				fmt.Println(id, "twice")
			}
		})
	}
	wg.Wait()
	fmt.Println("fewer requests than calls:", guest.Stats().Requests < 1000)
	// Output: fewer requests than calls: true
}

// Each sentinel has its own remedy.
func ExampleHandle_Next_errors() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()

	voucher := client.Must(ids.Segment("voucher", client.SegmentConfig{Prefetch: 1_000_000}))
	_, err := voucher.Next(context.Background())
	switch {
	case errors.Is(err, client.ErrUnknownTag):
		fmt.Println("create the tag")
	case errors.Is(err, client.ErrBadRequest):
		fmt.Println("correct the program")
	case errors.Is(err, client.ErrNotServed):
		fmt.Println("start natsid")
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrThrottled), errors.Is(err, client.ErrBusy):
		fmt.Println("ask again later")
	}
	if e, ok := errors.AsType[*subjects.Error](err); ok { // a worker refused
		fmt.Println(e.Code, e.MaxBatch)
	}
	// Output:
	// correct the program
	// 400 100000
}

// A batch arrives as runs of consecutive IDs.
func ExampleHandle_NextN() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()

	runs, err := client.Must(ids.Segment("invoice", client.SegmentConfig{})).NextN(context.Background(), 3)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(runs.Len())
	for id := range runs.All() {
		fmt.Println(id)
	}
	// Output:
	// 3
	// 1
	// 2
	// 3
}

// A thousand IDs are held, and thrown away after a minute.
func ExampleSegmentConfig() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	event := client.Must(ids.Segment("event", client.SegmentConfig{Prefetch: 1000, MaxAge: time.Minute}))

	ctx := context.Background()
	for range 3 {
		id, err := event.Next(ctx) // only the first waits for a request
		fmt.Println(id, err)
	}
	fmt.Println(event.Stats().Requests)
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
	// 1
}

// Unless workers create tags on first use, a tag is created before it is used.
func ExampleClient_CreateTag() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	ctx := context.Background()
	tag, err := ids.CreateTag(ctx, subjects.TagCreate{Tag: "user", Step: 5000, Start: 1_000_001})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tag.Tag, tag.Step)
	fmt.Println(client.Must(ids.Segment(tag.Tag, client.SegmentConfig{})).Next(ctx))
	// Output:
	// user 5000
	// 1000001 <nil>
}

// A service ensures at each start that its tags are there.
func ExampleClient_EnsureTag() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	ctx := context.Background()
	fmt.Println(ids.EnsureTag(ctx, subjects.TagCreate{Tag: "room", Step: 5000}))
	fmt.Println(ids.EnsureTag(ctx, subjects.TagCreate{Tag: "room", Step: 5000})) // at the next start
	fmt.Println(ids.EnsureTag(ctx, subjects.TagCreate{Tag: "room", Step: 6000}))
	// Output:
	// <nil>
	// <nil>
	// client: the tag exists: tag room has step 5000, want 6000; change it with natsid tag update
}

// A snowflake carries the time and the number of the worker that issued it.
func ExampleClient_Snowflake() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()

	id, err := client.Must(ids.Snowflake(client.SnowflakeConfig{})).Next(context.Background())
	if err != nil {
		fmt.Println(err)
	}
	p, err := snowflake.Leaf.Decode(id)
	fmt.Println(time.Since(p.Time) < time.Minute, err)
	// Output: true <nil>
}

// Snowflakes of business 3, where the layout has a field for it.
func ExampleSnowflakeConfig() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	fmt.Println(client.Must(ids.Snowflake(client.SnowflakeConfig{Business: 3})).Next(context.Background()))
}

// An ID is a string in JSON, since JavaScript rounds large numbers.
func ExampleID_MarshalJSON() {
	type order struct {
		ID    subjects.ID `json:"id"`
		Total int         `json:"total"`
	}
	body, err := json.Marshal(order{ID: 2124263042718941185, Total: 100})
	fmt.Println(string(body), err)

	var o order
	err = json.Unmarshal([]byte(`{"id": 2124263042718941185}`), &o) // a number will do
	fmt.Println(o.ID, err)
	// Output:
	// {"id":"2124263042718941185","total":100} <nil>
	// 2124263042718941185 <nil>
}

// A column of type BIGINT holds IDs.
func ExampleID_Value() {
	var id subjects.ID = 2124263042718941185
	column, err := id.Value() // as db.Exec("INSERT INTO orders (id) VALUES (?)", id) calls it
	fmt.Printf("%T %v %v\n", column, column, err)

	var back subjects.ID
	err = back.Scan(column) // as row.Scan(&back) calls it
	fmt.Println(back, err)

	var parent sql.Null[subjects.ID] // of a column that may be NULL
	err = parent.Scan(nil)
	fmt.Println(parent.Valid, err)
	// Output:
	// int64 2124263042718941185 <nil>
	// 2124263042718941185 <nil>
	// false <nil>
}

// Calls by their outcome, such as for metrics: client/outside/trace has OpenTelemetry and Prometheus.
func ExampleConfig() {
	ids, err := client.New(natsid().Conn, client.Config{ObserveCall: func(_ context.Context, c client.Call) {
		fmt.Println(c.Subject, c.Outcome, c.Took > 0)
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ids.Close()
	letter := client.Must(ids.Segment("letter", client.SegmentConfig{}))
	if _, err := letter.Next(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: id.segment.letter ok true
}

// What a handle has done so far.
func ExampleHandle_Stats() {
	ids := client.Must(client.New(natsid().Conn, client.Config{}))
	defer ids.Close()
	seat := client.Must(ids.Segment("seat", client.SegmentConfig{Prefetch: 100, MaxAge: time.Minute}))
	if _, err := seat.Next(context.Background()); err != nil {
		fmt.Println(err)
	}
	s := seat.Stats()
	fmt.Println(s.Requests, "request for", s.IDs, "IDs, of which", s.Held, "are held")
	// Output: 1 request for 100 IDs, of which 99 are held
}
