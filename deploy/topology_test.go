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

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// TestTheSameTopologyOfBinariesServes starts what docker-compose.yml names, on
// loopback: its nats-servers on that very nats.conf, a database, and as many
// workers as it says, with the environment it gives them. Only addresses,
// ports and directories are those of this test.
func TestTheSameTopologyOfBinariesServes(t *testing.T) {
	file := readCompose(t)
	natsd, natsid := build(t, "github.com/nats-io/nats-server/v2"), build(t, "github.com/natsid/natsid")

	names := natsServers(t)
	clients, routes := ports(t, len(names)), ports(t, len(names))
	for i, name := range names {
		env := service(t, file, name)["environment"].(map[string]any)
		run(t, []string{fmt.Sprintf("SERVER_NAME=%v", env["SERVER_NAME"])}, natsd, "-c", confIn(t, t.TempDir()),
			"-a", "127.0.0.1", "-p", clients[i],
			"--cluster", "nats://127.0.0.1:"+routes[i], "--routes", "nats://127.0.0.1:"+strings.Join(routes, ",nats://127.0.0.1:"))
	}
	url := "nats://127.0.0.1:" + strings.Join(clients, ",nats://127.0.0.1:")
	db := mysqltest.Start(t)

	worker := service(t, file, "natsid")
	var environ []string
	for name := range worker["environment"].(map[string]any) {
		// Each setting that compose gives must be known here, lest the test
		// starts something else.
		switch name {
		case "NATS_URL":
			environ = append(environ, "NATS_URL="+url)
		case "NATSID_MYSQL":
			environ = append(environ, "NATSID_MYSQL="+db.DSN())
		default:
			t.Errorf("the service natsid sets %s: teach this test what to set", name)
		}
	}
	replicas, err := strconv.Atoi(worker["deploy"].(map[string]any)["replicas"].(string))
	if err != nil || replicas < 2 {
		t.Fatalf("replicas %d, %v", replicas, err)
	}
	said := make(chan string, replicas)
	for range replicas {
		out := run(t, append(environ, "NATSID_DATA="+t.TempDir(), "NATSID_HTTP=127.0.0.1:0"), natsid)
		go func() {
			line, _ := out.ReadString('\n')
			said <- line
		}()
	}
	deadline := time.After(time.Minute)
	for i := range replicas {
		select {
		case line := <-said:
			if !strings.HasPrefix(line, "natsid is ready") {
				t.Fatalf("a worker says %q", line)
			}
		case <-deadline:
			t.Fatalf("%d of %d workers are ready after a minute", i, replicas)
		}
	}

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	wantReplicas(t, nc)
	if _, err := nc.Request("id.tag.create", []byte(`{"tag":"order","step":100}`), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 2000 {
		for _, subject := range []string{"id.segment.order", "id.snowflake"} {
			msg, err := nc.Request(subject, nil, 2*time.Second)
			if err != nil || len(msg.Data) == 0 {
				t.Fatalf("%s: %v %v", subject, msg, err)
			}
			ids = append(ids, string(msg.Data))
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 4000 {
		t.Errorf("4000 requests got %d different IDs", n)
	}
	var max int64
	if err := db.DB().QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'order'").Scan(&max); err != nil || max < 2001 {
		t.Errorf("leaf_alloc has order at %d, %v", max, err)
	}
}

// confIn returns the path of a copy of nats.conf that differs only in where the
// store is, and in that nobody asks for its health. The rest of what must
// differ here can be given as flags.
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

// wantReplicas checks that what must not be lost is kept three times.
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
	if out, err := exec.CommandContext(t.Context(), "go", "-C", "..", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// run starts a command, which is stopped when the test ends, and returns what
// it prints. Its log is shown if the test fails.
func run(t *testing.T, env []string, name string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended by itself
		_ = cmd.Wait()                          // says only how
	})
	return bufio.NewReader(out)
}

// ports returns n ports on loopback that nothing listens on.
func ports(t *testing.T, n int) (free []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free = append(free, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return free
}
