package trace_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/shop/trace"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
)

func TestEachCallHasASpanBelowThatOfItsCaller(t *testing.T) {
	t.Parallel()
	natsid := e2e.Start(t)
	spans := tracetest.NewInMemoryExporter()
	tracer := sdk.NewTracerProvider(sdk.WithSyncer(spans)).Tracer("shop")
	ids := client.New(natsid.Conn, client.Timeout(time.Minute), trace.Calls(tracer))
	defer ids.Close()

	var wg sync.WaitGroup
	for range 10 { // their requests may be shared
		wg.Go(func() {
			ctx, sale := tracer.Start(t.Context(), "sale")
			defer sale.End()
			if _, err := ids.Snowflake().Next(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sales, calls := map[string]bool{}, 0
	for _, s := range spans.GetSpans() {
		if s.Name == "sale" {
			sales[s.SpanContext.SpanID().String()] = true
		}
	}
	for _, s := range spans.GetSpans() {
		if s.Name == "id.snowflake" && sales[s.Parent.SpanID().String()] {
			calls++
		}
	}
	if len(sales) != 10 || calls != 10 {
		t.Errorf("%d spans of callers, and %d of calls below them", len(sales), calls)
	}

	spans.Reset()
	if _, err := ids.Segment("order").NextN(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := ids.Segment("not a tag").Next(context.Background()); err == nil {
		t.Fatal("IDs of a malformed tag")
	}
	got := spans.GetSpans()
	if len(got) != 2 || got[0].Name != "id.segment.order" || got[0].Status.Code != codes.Unset ||
		got[1].Status.Code != codes.Error {
		t.Fatalf("%+v", got)
	}
}
