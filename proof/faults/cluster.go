//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natsconf"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/process"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

const (
	startWithin = 60 * time.Second // until a process serves, on a busy machine
	stopWithin  = 15 * time.Second
	diskSize    = 32 << 20
)

// A cluster is the processes under test and the proxies between them.
type cluster struct {
	*harness
	fleet fleet
	opt   options
	bins  binaries

	secrets  secrets
	servers  []*server
	workers  []*worker
	operator *clock             // of each command
	proxies  []*natsproxy.Proxy // of the first worker, one per server
	db       *mysqltest.Server
	link     *mysqltest.Link    // between the workers and db
	load     *load              // the callers
	callers  *callers           // calls through package client
	probe    *probe             // nil before the start
	crashed  []*process.Process // processes that ended by themselves and were reported

	leafLink *mysqltest.Link // between the leaf node and the first server
	refused  []*worker       // workers that must not become ready, and may end
}

// start starts the fleet, creates the tags, and connects the callers.
func (c *cluster) start() {
	var err error
	c.operator, err = newClock(c.path("operator.clock"))
	c.must(err)
	urls := c.startServers()
	c.startDatabase()
	near := urls // the servers to which the first worker connects
	switch {
	case c.fleet.proxied:
		near = c.startProxies()
	case c.fleet.together:
		near = urls[:1]
	}
	for i := range c.fleet.workers {
		switch {
		case i == 0:
			c.addWorker(near)
		case c.fleet.together:
			c.addWorker(urls[:1])
		default:
			c.addWorker(urls)
		}
	}
	hub := urls
	if c.fleet.leaf != noLeaf {
		urls = append(urls, c.startLeaf())
	}
	if c.fleet.disks {
		c.mount(c.workers[0].data)
	}
	if c.fleet.servers == 0 {
		addr := c.port()
		c.workers[0].args = append(c.workers[0].args, "--listen", addr)
		urls = []string{"nats://" + addr}
		hub = urls
	}
	for i, d := range c.fleet.clocks {
		c.workers[i].clock.set(d)
	}
	c.startWorkers()
	c.limitWorkers()
	c.load, err = newLoad(c.dir, urls)
	c.must(err)
	c.Cleanup(c.load.disconnect)
	c.callers, err = newCallers(c.load, urls)
	c.must(err)
	c.Cleanup(c.callers.close)
	c.createTags(c.conn)
	if c.fleet.leaf == apart {
		c.createTagsOnLeaf()
	}
	c.placeMarks()
	c.startProbe(hub)
}

func (c *cluster) startDatabase() {
	if !c.fleet.mysql {
		return
	}
	c.db = mysqltest.Start(c)
	if c.fleet.proxied {
		c.link = mysqltest.Proxy(c, c.db.Addr())
	}
}

func (c *cluster) startProxies() (urls []string) {
	for _, v := range c.servers {
		p, err := natsproxy.Start(v.addr)
		c.must(err)
		c.Cleanup(p.Close)
		c.proxies = append(c.proxies, p)
		urls = append(urls, p.URL())
	}
	return urls
}

func (c *cluster) startWorkers() {
	for _, w := range c.workers {
		w.start()
	}
	for _, w := range c.workers {
		w.waitReady()
	}
}

func (c *cluster) port() string {
	addr, err := freeport.Get()
	c.must(err)
	return addr
}

// mount gives dir a small disk of its own.
func (c *cluster) mount(dir string) {
	c.must(os.MkdirAll(dir, 0o700))
	err := mountDisk(dir, diskSize)
	if err == errNoMounts {
		c.Skipf("%v", err)
	}
	c.must(err)
	// The kernel removes it with the runner in any case.
	c.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// longStep makes a range of the long tag last more than a minute.
func (c *cluster) longStep() int64 {
	sent := 0
	for _, m := range mix {
		if m.kind == long && m.batch {
			sent += c.opt.batch
		} else if m.kind == long {
			sent++
		}
	}
	const lasts = 70 // seconds
	return int64(sent) * int64(c.opt.rate) / int64(len(mix)) * lasts / int64(c.fleet.workers)
}

// createTags creates the tags of the load.
func (c *cluster) createTags(conn func() *nats.Conn) {
	period, zone, hole := "", "", subjects.ID(0)
	if c.fleet.daily { // each worker loads the short tag several times a second: also while their days differ
		period, zone, hole = "daily", c.load.days.plan(time.Now()), 10
	}
	for _, t := range []subjects.TagCreate{
		{Tag: longTag, Step: c.longStep()}, {Tag: shortTag, Step: shortStep, MaxHole: hole},
		{Tag: strictTag, Strict: true},
	} {
		t.Start, t.Period, t.Zone = 1, period, zone
		c.createTag(conn, t)
	}
}

func (c *cluster) createTag(conn func() *nats.Conn, t subjects.TagCreate) {
	body, err := json.Marshal(t)
	c.must(err)
	var last string
	if err := c.wait(startWithin, "creating tag "+t.Tag, func() bool {
		m, err := conn().Request(namespace.TagCreate(), body, callerWaits)
		if err != nil {
			last = err.Error()
			return false
		}
		last = m.Header.Get(subjects.HeaderError)
		return last == "" || strings.Contains(last, "exists")
	}); err != nil {
		c.Fatalf("%v: %s", err, last)
	}
}

// conn returns a connected connection of the callers, if there is one.
func (c *cluster) conn() *nats.Conn {
	for _, k := range c.load.links {
		if k.nc.IsConnected() {
			return k.nc
		}
	}
	return c.load.links[0].nc
}

// allReady reports whether all running workers are ready, except those that must refuse.
func (c *cluster) allReady() bool {
	return !slices.ContainsFunc(c.workers, func(w *worker) bool {
		return w.Running() && !slices.Contains(c.refused, w) && !w.ready()
	})
}

// checkProcesses reports each process that has ended by itself, once.
func (c *cluster) checkProcesses() {
	var all []*process.Process
	for _, v := range c.servers {
		all = append(all, v.Process)
	}
	for _, w := range c.workers {
		all = append(all, w.Process)
	}
	for _, p := range all {
		if p.Crashed() && !slices.Contains(c.crashed, p) {
			c.crashed = append(c.crashed, p)
			c.violation("%s has ended by itself: %v", p.Name, p.Cmd.ProcessState)
		}
	}
}

// A server is a nats-server.
type server struct {
	*process.Process
	name, addr, data, conf string
	monitor                string // URL of its monitoring, without a path; "" for none
}

// startServers starts the nats-servers and returns the URLs of all.
func (c *cluster) startServers() (urls []string) {
	var routes []string
	for i := range c.fleet.servers {
		name := fmt.Sprint("n", i+1)
		v := &server{name: name, addr: c.port(), data: c.path(name), conf: c.path(name + ".conf")}
		c.servers = append(c.servers, v)
		routes = append(routes, c.port())
		urls = append(urls, "nats://"+v.addr)
	}
	for i, v := range c.servers {
		var cluster string
		if len(c.servers) > 1 {
			cluster = natsconf.Cluster(i, routes, c.fleet.together)
		}
		c.configure(v, cluster+c.leafListener(i)+c.monitoring(v))
		if c.fleet.disks && i == len(c.servers)-1 {
			c.mount(v.data)
		}
		c.startServer(v)
	}
	c.Cleanup(func() {
		for _, v := range c.servers {
			v.Kill()
		}
	})
	return urls
}

// configure writes the configuration of a server, and more.
func (c *cluster) configure(v *server, more string) {
	domain := "" // leaf node and hub have domains of their own
	if c.fleet.leaf != noLeaf {
		domain = "domain: " + v.name
	}
	conf := natsconf.Server{Name: v.name, Listen: v.addr, Store: v.data, JetStream: domain, More: more}
	c.must(os.WriteFile(v.conf, []byte(conf.String()), 0o600))
	c.must(os.MkdirAll(v.data, 0o700))
}

func (c *cluster) startServer(v *server) {
	c.checkProcesses()
	p, err := process.Start(c.path(v.name+".log"), v.name, nil, c.bins.natsServer, "-c", v.conf)
	c.must(err)
	v.Process = p
	c.waitFor(startWithin, v.name+" accepts connections", func() bool {
		if !v.Running() {
			c.Fatalf("%s has ended: %v", v.name, v.Cmd.ProcessState)
		}
		nc, err := net.Dial("tcp", v.addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// urls returns the URLs of the nats-servers.
func (c *cluster) urls() (urls []string) {
	for _, v := range c.servers {
		urls = append(urls, "nats://"+v.addr)
	}
	return urls
}

// replicas returns the state of a stream on a cluster; ok is false if the state is not available at the moment.
func (c *cluster) replicas(stream string) (info *jetstream.ClusterInfo, ok bool) {
	js, err := jetstream.New(c.conn())
	c.must(err)
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return nil, false
	}
	return s.CachedInfo().Cluster, true
}

// current reports whether all replicas of a stream are up to date.
func (c *cluster) current(stream string) bool {
	info, ok := c.replicas(stream)
	return ok && info.Leader != "" && len(info.Replicas) == len(c.servers)-1 &&
		!slices.ContainsFunc(info.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
}

// waitForReplicas waits until every server has a current replica of every bucket, as an operator does before stopping
// the next server.
func (c *cluster) waitForReplicas() {
	for _, bucket := range []string{
		wire.SegmentBucket(namespace), wire.HistoryBucket(namespace), wire.WorkerBucket(namespace),
	} {
		c.waitFor(startWithin, bucket+" has three current replicas", func() bool { return c.current("KV_" + bucket) })
	}
}

// leader returns the server that leads the stream of a bucket, and the others.
func (c *cluster) leader(bucket string) (leader *server, followers []*server) {
	c.waitFor(startWithin, bucket+" has a leader", func() bool {
		leader, followers = nil, nil
		info, ok := c.replicas("KV_" + bucket)
		if !ok {
			return false
		}
		for _, v := range c.servers {
			if v.name == info.Leader {
				leader = v
			} else {
				followers = append(followers, v)
			}
		}
		return leader != nil
	})
	return leader, followers
}

// roll stops each server with a signal and starts it again, as an upgrade does.
func (c *cluster) roll(sig syscall.Signal) {
	for _, v := range c.servers {
		c.logf("%v for nats-server %s", sig, v.name)
		c.must(v.Stop(sig, startWithin))
		c.startServer(v)
		c.waitForReplicas()
	}
}

// handOver asks the leader of a bucket to let another server lead it. The request may fail, and is repeated.
func (c *cluster) handOver(bucket, to string) {
	body := fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, to)
	_, _ = c.conn().Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bucket, body, time.Second)
}

// placeMarks makes the fault's choice of server the leader of the marks.
func (c *cluster) placeMarks() {
	if c.fleet.marksOn == "" {
		return
	}
	c.waitFor(startWithin, c.fleet.marksOn+" leads the marks", func() bool {
		leader, _ := c.leader(wire.SegmentBucket(namespace))
		if leader.name != c.fleet.marksOn {
			c.handOver(wire.SegmentBucket(namespace), c.fleet.marksOn)
			return false
		}
		return c.current("KV_" + wire.SegmentBucket(namespace))
	})
}

func (c *cluster) eachProxy(f func(*natsproxy.Proxy)) {
	for _, p := range c.proxies {
		f(p)
	}
}
