//go:build linux

package main

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// A hub is the first server of a fleet with a leaf node. Each has a JetStream in a domain of its own, which the
// other's clients do not see; subjects are shared while the link between them is up.

// leafListener returns the part for leaf nodes in the i-th server's configuration.
func (c *cluster) leafListener(i int) string {
	if c.fleet.leaf == noLeaf || i > 0 {
		return ""
	}
	addr := c.port()
	c.leafLink = mysqltest.Proxy(c, addr) // it passes bytes on unchanged
	c.leafLink.Refuse(c.fleet.leaf == apart)
	return fmt.Sprintf("leafnodes { listen: %q }", addr)
}

// startLeaf starts the leaf node, adds its worker if it has one, and returns its URL.
func (c *cluster) startLeaf() string {
	v := &server{name: "leaf", addr: c.port(), data: c.path("leaf"), conf: c.path("leaf.conf")}
	c.servers = append(c.servers, v)
	c.configure(v, fmt.Sprintf(`leafnodes { reconnect: 1, remotes: [{ url: "nats-leaf://%s" }] }`, c.leafLink.Addr()))
	c.startServer(v)
	if c.fleet.leaf == apart {
		c.addWorker([]string{c.leafURL()})
	}
	return c.leafURL()
}

func (c *cluster) leafURL() string { return "nats://" + c.servers[len(c.servers)-1].addr }

// createTagsOnLeaf creates the tags in the registry of the leaf node.
func (c *cluster) createTagsOnLeaf() {
	conn := func() *nats.Conn { return c.load.links[len(c.load.links)-1].nc }
	c.createTags(conn)
}
