package number_test

import (
	"fmt"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/number"
)

// t stands for the *testing.T of a user's test.
var t = new(exampletb.T)

func ExampleOpen() {
	nc := e2e.Start(t, e2e.Config{}).Conn // in a service: nats.Connect

	ids, err := number.Open(t.Context(), nc, number.Config{Name: "shop-1"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	first, err := ids.Next(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	second, err := ids.Next(t.Context())
	fmt.Println(second > first, err)

	w, _ := ids.Number()
	parts, err := ids.Layout().Decode(first)
	fmt.Println(parts.Worker == w, w >= 512, err)
	fmt.Println(ids.Close())
	// Output:
	// true <nil>
	// true true <nil>
	// <nil>
}
