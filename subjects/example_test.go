package subjects_test

import (
	"fmt"

	"github.com/natsid/natsid/subjects"
)

// The subjects of a deployment follow from its namespace.
func ExampleNamespace() {
	const ns = subjects.DefaultNamespace
	fmt.Println(ns.Segment("order"))
	fmt.Println(ns.Snowflake())
	fmt.Println(ns.SnowflakeOf(7))
	// Output:
	// id.segment.order
	// id.snowflake
	// id.snowflake.7
}

func ExampleNamespace_Check() {
	fmt.Println(subjects.Namespace("shop-eu").Check())
	fmt.Println(subjects.Namespace("shop.eu").Check())
	// Output:
	// <nil>
	// namespace "shop.eu": byte 4 is '.', want A-Z a-z 0-9 - _
}

// A reply holds runs of consecutive IDs.
func ExampleParseRuns() {
	runs, err := subjects.ParseRuns([]byte("1001-1100\n2001"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range runs {
		fmt.Println(r.First, r.Last, r.Len())
	}
	// Output:
	// 1001 1100 100
	// 2001 2001 1
}

// An error is a reply with an empty body and headers.
func ExampleParseError() {
	err := subjects.ParseError(map[string][]string{
		subjects.HeaderErrorCode:  {"429"},
		subjects.HeaderError:      {"too many requests wait for this tag"},
		subjects.HeaderRetryAfter: {"150"},
	})
	fmt.Println(err)
	fmt.Println("retry:", err.Code.Retry(), "after", err.RetryAfter)
	// Output:
	// 429: too many requests wait for this tag
	// retry: true after 150ms
}

func ExampleCheckTag() {
	fmt.Println(subjects.CheckTag("invoice.eu/2026"))
	fmt.Println(subjects.CheckTag("invoice eu"))
	// Output:
	// <nil>
	// 400: byte 7 of the tag is " ", want A-Z a-z 0-9 - _ / = .
}

func ExampleCodes() {
	for _, c := range subjects.Codes() {
		fmt.Println(c.Code, c.Meaning)
	}
	// Output:
	// 400 the request is malformed; the text says how
	// 404 there is no such tag, or it was deleted
	// 409 the tag to be created exists
	// 410 fewer numbers than requested are left of the tag, or of its day, month or year
	// 429 too many requests wait already, or more is asked for than a limit allows
	// 500 a bug in natsid
	// 503 this worker cannot issue now; with Natsid-Retry-After-Ms none does before an operator acts
}
