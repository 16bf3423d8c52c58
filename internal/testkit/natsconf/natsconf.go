// Package natsconf writes the configuration of nats-servers that tests and tools start as processes.
package natsconf

import (
	"fmt"
	"strings"
)

// A Server is deploy/nats.conf on loopback: always synced; clients and servers that hang are detected within seconds;
// a server in lame duck mode waits for 1 s before it disconnects its clients, one per second.
type Server struct {
	Name, Listen string // host:port
	Store        string // directory of JetStream
	JetStream    string // more settings of JetStream
	More         string // more settings
}

const config = `
server_name: %[1]s
listen: %[2]q
jetstream { store_dir: %[3]q, max_file_store: 64M, max_memory_store: 16M, sync_interval: always, %[4]s }
ping_interval: "2s"
ping_max: 2
lame_duck_grace_period: "1s"
lame_duck_duration: "30s"
%[5]s
`

// String returns the content of the file.
func (s Server) String() string {
	return fmt.Sprintf(config, s.Name, s.Listen, s.Store, s.JetStream, s.More)
}

// Cluster returns the addition to a server's settings that makes it one of several, which listen for each other on
// routes, this one on the i-th. They announce one another to clients only if advertise is set: clients must not learn
// of other servers past a proxy.
func Cluster(i int, routes []string, advertise bool) string {
	return fmt.Sprintf("cluster { name: cluster, listen: %q, routes: [\"nats://%s\"], no_advertise: %t }",
		routes[i], strings.Join(routes, `", "nats://`), !advertise)
}
