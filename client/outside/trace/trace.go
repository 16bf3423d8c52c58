// Package trace shows how a program traces its calls for IDs with OpenTelemetry.
package trace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/natsid/natsid/client"
)

// Calls makes a span of each call, as a child of the span in the caller's context.
func Calls(tracer trace.Tracer) client.Option {
	return client.ObserveCalls(func(ctx context.Context, call client.Call) func(error) {
		_, span := tracer.Start(ctx, call.Subject, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.Int("natsid.ids", call.IDs)))
		return func(err error) {
			if err != nil {
				span.RecordError(err)
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	})
}
