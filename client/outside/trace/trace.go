// Package trace shows how a program observes its calls for IDs with OpenTelemetry and Prometheus.
package trace

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/natsid/natsid/client"
)

// Spans makes a span of each call, as a child of the span in the caller's context. It is for client.Config.ObserveCall.
func Spans(tracer trace.Tracer) func(context.Context, client.Call) {
	return func(ctx context.Context, call client.Call) {
		_, span := tracer.Start(ctx, call.Subject, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithTimestamp(call.Began), trace.WithAttributes(attribute.Int("natsid.ids", call.IDs)))
		if call.Err != nil {
			span.SetAttributes(attribute.String("error.type", call.Outcome))
			span.SetStatus(codes.Error, call.Err.Error())
		}
		span.End(trace.WithTimestamp(call.Began.Add(call.Took)))
	}
}

// Seconds counts calls by how they ended, and how long they took. It is for client.Config.ObserveCall.
func Seconds(reg prometheus.Registerer) func(context.Context, client.Call) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "natsid_client_call_seconds", Help: "How long calls for IDs took, by their outcome.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	}, []string{"outcome"})
	reg.MustRegister(seconds)
	return func(_ context.Context, call client.Call) {
		seconds.WithLabelValues(call.Outcome).Observe(call.Took.Seconds())
	}
}
