//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/subjects"
)

// A cast is what a fault needs to be played.
type cast struct {
	servers int // nats-servers; 0: the only worker has one inside
	workers int
	mysql   bool     // segments in MariaDB, guarded by marks in JetStream
	proxied bool     // the first worker reaches NATS, and all reach MariaDB, through proxies
	disks   bool     // the last server and the first worker have small disks of their own
	flags   []string // of all workers
}

const (
	startWithin = 60 * time.Second // until a process serves, on a machine that does much else
	stopWithin  = 15 * time.Second
	diskSize    = 32 << 20
)

// A server is a nats-server.
type server struct {
	*process
	name, addr, data, conf string
}

// natsConf is deploy/nats.conf on loopback: always synced; clients and servers
// that hang are noticed within seconds; a lame duck waits 1 s before it sends its
// clients away, each within a second of the one before.
const natsConf = `
server_name: %[1]s
listen: %[2]q
jetstream { store_dir: %[3]q, max_file_store: 64M, max_memory_store: 16M, sync_interval: always }
ping_interval: "2s"
ping_max: 2
lame_duck_grace_period: "1s"
lame_duck_duration: "30s"
%[4]s
`

// startServers starts the nats-servers and returns the URLs of all.
func (s *scene) startServers() (urls []string) {
	var routes []string
	for i := range s.cast.servers {
		name := fmt.Sprint("n", i+1)
		v := &server{name: name, addr: s.port(), data: s.path(name), conf: s.path(name + ".conf")}
		s.servers = append(s.servers, v)
		routes = append(routes, s.port())
		urls = append(urls, "nats://"+v.addr)
	}
	for i, v := range s.servers {
		var cluster string
		if len(s.servers) > 1 {
			cluster = fmt.Sprintf("cluster { name: faults, listen: %q, routes: [\"nats://%s\"], no_advertise: true }", routes[i], strings.Join(routes, `", "nats://`))
		}
		s.must(os.WriteFile(v.conf, fmt.Appendf(nil, natsConf, v.name, v.addr, v.data, cluster), 0o600))
		s.must(os.MkdirAll(v.data, 0o700))
		if s.cast.disks && i == len(s.servers)-1 {
			s.mount(v.data)
		}
		s.startServer(v)
	}
	s.Cleanup(func() {
		for _, v := range s.servers {
			v.kill()
		}
	})
	return urls
}

func (s *scene) startServer(v *server) {
	s.judgeProcesses()
	p, err := startProcess(s.path(v.name+".log"), v.name, nil, s.bins.natsServer, "-c", v.conf)
	s.must(err)
	v.process = p
	s.until(startWithin, v.name+" accepts connections", func() bool {
		if !v.running() {
			s.Fatalf("%s has ended: %v", v.name, v.cmd.ProcessState)
		}
		nc, err := net.Dial("tcp", v.addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

func (s *scene) port() string {
	addr, err := freeport.Get()
	s.must(err)
	return addr
}

// mount gives dir a small disk of its own.
func (s *scene) mount(dir string) {
	if err := mountDisk(dir, diskSize); err == errNoMounts {
		s.Skipf("%v", err)
	} else {
		s.must(err)
	}
	s.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }) // it is gone with the runner in any case
}

// A worker is a natsid in all its lives.
type worker struct {
	*process
	s      *scene
	name   string
	data   string // "" for none
	args   []string
	clock  *clock
	number int    // of its last life that became ready
	http   string // of its last life that became ready
}

// newWorker makes a worker that reaches NATS at urls; start starts it.
func (s *scene) newWorker(urls []string, extra ...string) *worker {
	name := fmt.Sprint("w", len(s.workers)+1)
	c, err := newClock(s.path(name + ".clock"))
	s.must(err)
	w := &worker{s: s, name: name, data: s.path(name), clock: c}
	w.args = []string{"--name", name, "--http", "127.0.0.1:0", "--on-clock-step", s.opt.onClockStep}
	if len(urls) > 0 {
		w.args = append(w.args, "--nats", strings.Join(urls, ","))
	}
	if s.db != nil {
		w.args = append(w.args, "--mysql", s.dsn())
	}
	w.args = append(append(w.args, s.cast.flags...), extra...)
	s.workers = append(s.workers, w)
	s.Cleanup(func() { w.kill() })
	return w
}

// dsn leads to the database, through the link if there is one.
func (s *scene) dsn() string {
	dsn := s.db.DSN()
	if s.link != nil {
		dsn = strings.Replace(dsn, s.db.Addr(), s.link.Addr(), 1)
	}
	return dsn
}

// start starts a life of the worker, and does not wait until it serves.
func (w *worker) start() {
	w.s.judgeProcesses() // before this one's end is forgotten
	args := append([]string{"serve", "--data", w.data}, w.args...)
	p, err := startProcess(w.s.path(w.name+".log"), w.name, []string{clockEnv + "=" + w.clock.path}, w.s.bins.natsid, args...)
	w.s.must(err)
	w.process, w.http = p, ""
}

var readyRe = regexp.MustCompile(`^natsid is ready on .*, worker number (\d+), (http://\S+)/readyz`)

// serve waits until this life has become ready for the first time.
func (w *worker) serve() {
	w.s.until(startWithin, w.name+" serves", func() bool {
		if !w.running() {
			w.s.Fatalf("%s has ended: %v", w.name, w.cmd.ProcessState)
		}
		m := readyRe.FindStringSubmatch(w.printed())
		if m != nil {
			w.number, _ = strconv.Atoi(m[1])
			w.http = m[2]
		}
		return m != nil
	})
}

// restart starts the next life of the worker and waits until it serves.
func (w *worker) restart() {
	w.start()
	w.serve()
	w.s.say("%s serves, number %d", w.name, w.number)
}

// ready reports whether the worker serves all there is at this moment.
func (w *worker) ready() bool {
	if !w.running() || w.http == "" {
		return false
	}
	c := http.Client{Timeout: time.Second}
	r, err := c.Get(w.http + "/readyz")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// startAll starts the cast, makes the tags, and lets callers call.
func (s *scene) startAll() {
	urls := s.startServers()
	if s.cast.mysql {
		s.db = mysqltest.Start(s)
		if s.cast.proxied {
			s.link = mysqltest.Proxy(s, s.db.Addr())
		}
	}
	near := urls
	if s.cast.proxied {
		near = s.startProxies()
	}
	for i := range s.cast.workers {
		reach := urls
		if i == 0 {
			reach = near
		}
		w := s.newWorker(reach)
		if i == 0 && s.cast.disks {
			s.must(os.MkdirAll(w.data, 0o700))
			s.mount(w.data)
		}
	}
	if s.cast.servers == 0 {
		addr := s.port()
		s.workers[0].args = append(s.workers[0].args, "--listen", addr)
		urls = []string{"nats://" + addr}
	}
	for _, w := range s.workers {
		w.start()
	}
	for _, w := range s.workers {
		w.serve()
	}
	load, err := newLoad(s.dir, urls)
	s.must(err)
	s.Cleanup(load.disconnect)
	s.load = load
	s.makeTag(longTag, s.longStep(), 1)
	s.makeTag(shortTag, shortStep, 1)
}

func (s *scene) startProxies() (urls []string) {
	for _, v := range s.servers {
		p, err := natsproxy.Start(v.addr)
		s.must(err)
		s.Cleanup(func() { p.Close() })
		s.proxies = append(s.proxies, p)
		urls = append(urls, "nats://"+p.Addr())
	}
	return urls
}

// longStep makes a range of the long tag last more than a minute.
func (s *scene) longStep() int64 {
	asked := 0
	for _, m := range mix {
		if m.kind == long && m.batch {
			asked += s.opt.batch
		} else if m.kind == long {
			asked++
		}
	}
	const lasts = 70 // seconds
	return int64(asked) * int64(s.opt.rate) / int64(len(mix)) * lasts / int64(s.cast.workers)
}

func (s *scene) makeTag(tag string, step, start int64) {
	body, err := json.Marshal(subjects.TagCreate{Tag: tag, Step: step, Start: subjects.Decimal(start)})
	s.must(err)
	var last string
	if err := s.await(startWithin, "making tag "+tag, func() bool {
		m, err := s.nc().Request(namespace.TagCreate(), body, callerWaits)
		if err != nil {
			last = err.Error()
			return false
		}
		last = m.Header.Get(subjects.HeaderError)
		return last == "" || strings.Contains(last, "exists")
	}); err != nil {
		s.Fatalf("%v: %s", err, last)
	}
}

// nc returns a connection that is up, if there is one.
func (s *scene) nc() *nats.Conn {
	for _, k := range s.load.links {
		if k.nc.IsConnected() {
			return k.nc
		}
	}
	return s.load.links[0].nc
}

// urls returns where the nats-servers are.
func (s *scene) urls() (urls []string) {
	for _, v := range s.servers {
		urls = append(urls, "nats://"+v.addr)
	}
	return urls
}

// current reports whether all replicas of a bucket are up to date.
func (s *scene) current(bucket string) bool {
	js, err := jetstream.New(s.nc())
	s.must(err)
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil || stream.CachedInfo().Cluster == nil {
		return false
	}
	c := stream.CachedInfo().Cluster
	return c.Leader != "" && len(c.Replicas) == len(s.servers)-1 &&
		!slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
}

// leader returns the server that leads the stream of a bucket, and the others.
func (s *scene) leader(bucket string) (leader *server, followers []*server) {
	s.until(startWithin, bucket+" has a leader", func() bool {
		leader, followers = nil, nil
		js, err := jetstream.New(s.nc())
		s.must(err)
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, "KV_"+bucket)
		if err != nil || stream.CachedInfo().Cluster == nil {
			return false
		}
		for _, v := range s.servers {
			if v.name == stream.CachedInfo().Cluster.Leader {
				leader = v
			} else {
				followers = append(followers, v)
			}
		}
		return leader != nil
	})
	return leader, followers
}

// copyDir copies a data directory, as whoever clones a machine does.
func copyDir(to, from string) error { return os.CopyFS(to, os.DirFS(filepath.Clean(from))) }
