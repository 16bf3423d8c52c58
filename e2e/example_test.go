package e2e_test

import (
	"fmt"
	"math"

	"github.com/natsid/natsid/e2e"
)

// A test that needs IDs starts a natsid in one line.
func Example() {
	// func TestInvoice(t *testing.T) {
	ids := e2e.Start(t, e2e.Config{})
	first, err := ids.Segment("invoice").Next(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	second, err := ids.Segment("invoice").Next(t.Context())
	fmt.Println(first > 0, second > first, err)
	// Output: true true <nil>
}

// Callers notice nothing of a worker that stops: another one answers.
func ExampleCluster_StopWorker() {
	// func TestARestartLosesNothing(t *testing.T) {
	ids := e2e.Start(t, e2e.Config{Workers: 2})
	before, err := ids.Snowflake().Next(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	ids.StopWorker(0)
	after, err := ids.Snowflake().Next(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Println("different:", before != after)
	// Output: different: true
}

// Any NATS client can request IDs: here for a batch, in a namespace of its own.
func ExampleConfig() {
	// func TestBatch(t *testing.T) {
	ids := e2e.Start(t, e2e.Config{Namespace: "shop"})
	reply, err := ids.Conn.RequestWithContext(t.Context(), "shop.segment.order", []byte("100"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Printf("%s\n", reply.Data)
	// Output: 1-100
}

// A test finds code that keeps IDs in 32 bits: here it would fail.
func ExampleCluster_Skip() {
	// func TestInvoicesAfterYears(t *testing.T) {
	ids := e2e.Start(t, e2e.Config{})
	invoice := ids.Segment("invoice")
	if _, err := invoice.Next(t.Context()); err != nil {
		t.Fatalf("%v", err)
	}
	ids.Skip(1 << 32)
	id, err := invoice.Next(t.Context())
	fmt.Println(id > math.MaxUint32, err)
	// Output: true <nil>
}
