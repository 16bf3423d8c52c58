// Package shop is an example of a program outside natsid's module: it requires natsid in a go.mod of its own, and tests
// itself with the package e2e.
package shop

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// A Shop numbers its orders by the dense IDs of a tag, and the lines of an order by snowflakes.
type Shop struct {
	ids    *client.Client
	orders *client.Handle
	lines  *client.Handle
}

// An Order is one order with its lines.
type Order struct {
	ID    subjects.ID   `json:"id"`
	Lines []subjects.ID `json:"lines"`
}

// New returns a shop that requests its numbers over a connection.
func New(nc *nats.Conn) (*Shop, error) {
	ids, err := client.New(nc, client.Config{})
	if err != nil {
		return nil, err
	}
	return &Shop{
		ids:    ids,
		orders: client.Must(ids.Segment("order", client.SegmentConfig{})),
		lines:  client.Must(ids.Snowflake(client.SnowflakeConfig{})),
	}, nil
}

// Close closes the shop's client. The caller closes the connection.
func (s *Shop) Close() { s.ids.Close() }

// Order numbers a new order of n lines.
func (s *Shop) Order(ctx context.Context, n int) (Order, error) {
	id, err := s.orders.Next(ctx)
	if err != nil {
		return Order{}, fmt.Errorf("shop: number an order: %w", err)
	}
	runs, err := s.lines.NextN(ctx, n)
	if err != nil {
		return Order{}, fmt.Errorf("shop: number the lines of order %d: %w", id, err)
	}
	return Order{id, slices.Collect(runs.All())}, nil
}
