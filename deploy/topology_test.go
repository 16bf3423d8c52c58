package deploy_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// TestTheSameTopologyOfBinariesServes starts the services of docker-compose.yml on
// loopback: its nats-servers with nats.conf, a database, and as many workers as it
// says, with the environment that it gives them. Only addresses, ports and
// directories differ.
func TestTheSameTopologyOfBinariesServes(t *testing.T) {
	url := startServers(t)
	db := mysqltest.Start(t)
	startWorkers(t, url, db.DSN())

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	wantReplicas(t, nc)
	request(t, nc, "id.tag.create", `{"tag":"order","step":100}`)
	var ids []string
	for range 2000 {
		ids = append(ids, request(t, nc, "id.segment.order", ""), request(t, nc, "id.snowflake", ""))
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 4000 {
		t.Errorf("4000 requests got %d different IDs", n)
	}
	var max int64
	err = db.DB().QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'order'").Scan(&max)
	if err != nil || max < 2001 {
		t.Errorf("leaf_alloc has order at %d, %v", max, err)
	}
}

// startServers starts the nats-servers and returns the URLs of all.
func startServers(t *testing.T) (url string) {
	t.Helper()
	file, natsd := readCompose(t), build(t, "github.com/nats-io/nats-server/v2")
	names := natsServers(t)
	clients, routes := ports(t, len(names)), ports(t, len(names))
	for i, name := range names {
		env := service(t, file, name)["environment"].(map[string]any)
		run(t, []string{fmt.Sprintf("SERVER_NAME=%v", env["SERVER_NAME"])}, natsd, "-c", confIn(t, t.TempDir()),
			"-a", "127.0.0.1", "-p", clients[i],
			"--cluster", "nats://127.0.0.1:"+routes[i],
			"--routes", "nats://127.0.0.1:"+strings.Join(routes, ",nats://127.0.0.1:"))
	}
	return "nats://127.0.0.1:" + strings.Join(clients, ",nats://127.0.0.1:")
}

// startWorkers starts the workers and waits until all are ready.
func startWorkers(t *testing.T, url, dsn string) {
	t.Helper()
	natsid, worker := build(t, "github.com/natsid/natsid"), service(t, readCompose(t), "natsid")
	replicas, err := strconv.Atoi(worker["deploy"].(map[string]any)["replicas"].(string))
	if err != nil || replicas < 2 {
		t.Fatalf("replicas %d, %v", replicas, err)
	}
	said := make(chan string, replicas)
	for range replicas {
		env := append(workerEnv(t, worker, url, dsn), "NATSID_DATA="+t.TempDir(), "NATSID_HTTP=127.0.0.1:0")
		out := run(t, env, natsid)
		go func() {
			line, _ := out.ReadString('\n')
			said <- line
		}()
	}
	deadline := time.After(patience)
	for i := range replicas {
		select {
		case line := <-said:
			if !strings.HasPrefix(line, "natsid is ready") {
				t.Fatalf("a worker says %q", line)
			}
		case <-deadline:
			t.Fatalf("%d of %d workers are ready after %v", i, replicas, patience)
		}
	}
}

// workerEnv returns the environment that compose gives to workers, with the
// addresses of this test.
func workerEnv(t *testing.T, worker map[string]any, url, dsn string) (environ []string) {
	t.Helper()
	for name := range worker["environment"].(map[string]any) {
		// A setting that this test does not know would make it start something
		// else.
		switch name {
		case "NATS_URL":
			environ = append(environ, "NATS_URL="+url)
		case "NATSID_MYSQL":
			environ = append(environ, "NATSID_MYSQL="+dsn)
		case "NATSID_HTTP_TOKEN_FILE":
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("natsid\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			environ = append(environ, "NATSID_HTTP_TOKEN_FILE="+token)
		default:
			t.Errorf("the service natsid sets %s: add it to this test", name)
		}
	}
	return environ
}

// patience bounds each wait. It is long: a machine may be busy.
const patience = 3 * time.Minute

// request returns the answer to a request. It retries as a caller does: the server
// learns of workers on the others after they are ready, and on a busy machine a
// load can outlast the deadline.
func request(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		msg, err := nc.Request(subject, []byte(body), 5*time.Second)
		if err == nil && len(msg.Data) > 0 {
			return string(msg.Data)
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v %v", subject, msg, err)
		}
	}
}

// confIn returns the path of a copy of nats.conf that differs in the folder of the
// store, and has no port for health checks. All else that must differ here can be
// given as flags.
func confIn(t *testing.T, dir string) string {
	t.Helper()
	conf := readFile(t, "nats.conf")
	for old, new := range map[string]string{"store_dir: /data": "store_dir: " + dir, `http: "127.0.0.1:8222"`: ""} {
		if strings.Count(conf, old) != 1 {
			t.Fatalf("nats.conf does not say %q", old)
		}
		conf = strings.Replace(conf, old, new, 1)
	}
	path := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantReplicas checks that each bucket has three replicas.
func wantReplicas(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"id_segments", "id_history", "id_workers"} {
		stream, err := js.Stream(t.Context(), "KV_"+bucket)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("bucket %s has %d replicas, want 3", bucket, n)
		}
	}
}

// build builds a command, with the versions that natsid's module has, and
// returns its path.
func build(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "-C", "..", "build", "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// run starts a command, which is stopped when the test ends, and returns its
// standard output. Its log is shown if the test fails.
func run(t *testing.T, env []string, name string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended by itself
		_ = cmd.Wait()                          // reports only how it ended
	})
	return bufio.NewReader(out)
}

// ports returns n ports on loopback that nothing listens on.
func ports(t *testing.T, n int) (free []string) {
	t.Helper()
	for range n {
		addr, err := freeport.Get()
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, port)
	}
	return free
}
