// Package trace shows how a program traces its calls for IDs with OpenTelemetry.
package trace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/natsid/natsid/client"
)

// Calls makes a span of each call, as a child of the span in the caller's context. A request that belongs to one call
// carries its traceparent.
func Calls(tracer trace.Tracer) client.Option {
	return client.ObserveCalls(func(ctx context.Context, call client.Call) func(error) {
		ctx, span := tracer.Start(ctx, call.Subject, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.Int("natsid.ids", call.IDs)))
		if call.Header != nil {
			carrier := propagation.MapCarrier{}
			propagation.TraceContext{}.Inject(ctx, carrier)
			for key, value := range carrier {
				call.Header.Set(key, value)
			}
		}
		return func(err error) {
			if err != nil {
				span.RecordError(err)
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	})
}
