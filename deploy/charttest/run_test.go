package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// patience bounds each wait. It is long: a machine may be busy.
const patience = 3 * time.Minute

// bin is the folder of natsid and nats-server, of the versions of natsid's module.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "natsid-chart-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		for name, pkg := range map[string]string{"natsid": ".", "nats-server": "github.com/nats-io/nats-server/v2"} {
			out, err := exec.Command("go", "-C", "../..", "build", "-o", filepath.Join(bin, name), pkg).CombinedOutput()
			if err != nil {
				fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", pkg, err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

// `natsid config` names every variable that is no setting, and every value that is refused.
func TestNatsidTakesTheVariablesOfEverySet(t *testing.T) {
	for set := range sets {
		t.Run(set, func(t *testing.T) {
			o := render(t, values(t, set))
			for _, c := range o.containers() {
				cmd := exec.Command(filepath.Join(bin, "natsid"), "config")
				cmd.Env = environ(t, c, map[string]string{"mysql/dsn": "leaf:password@tcp(db:3306)/leaf"})
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: natsid config: %v\n%s", c.Name, err, out)
				}
			}
		})
	}
}

// The command line that Kubernetes would run serves, on a NATS with users; the pod of `helm test`
// gets an ID; probes, metrics and Leaf's paths answer where the chart says; a stop is clean.
func TestARenderedWorkerServes(t *testing.T) {
	client, http, leaf := port(t), port(t), port(t)
	o := render(t, fmt.Sprintf(`
nats: {url: 'nats://127.0.0.1:%s', auth: {user: worker, password: {secret: worker, key: password}}}
http: {port: %s, token: {secret: page, key: token}}
leaf: {enabled: true, port: %s, auth: {user: caller, password: {secret: caller, key: password}}}
settings: {namespace: shop, auto-create-tags: true, max-step: 1000000, deadline: 2s}
serviceMonitor: {enabled: true}
test: {tag: order, auth: {user: caller, password: {secret: caller, key: password}}}
`, client, http, leaf))
	startNATS(t, client, `authorization { users: [
		{ user: worker, password: w }
		{ user: caller, password: c, permissions: {
			publish: { allow: ["shop.segment.>"] }, subscribe: { allow: ["_INBOX.>"] } } }
	] }`)
	worker := start(t, o.worker(), map[string]string{"nats/password": "w\n", "http/token": "t\n"})
	for _, probe := range []*corev1.Probe{
		o.worker().StartupProbe, o.worker().ReadinessProbe, o.worker().LivenessProbe,
	} {
		await(t, worker, http, probe.HTTPGet.Path, 200)
	}

	get := exec.Command(filepath.Join(bin, "natsid"), o.Test.Spec.Containers[0].Args...)
	get.Env = environ(t, o.Test.Spec.Containers[0], map[string]string{"nats/password": "c\n"})
	out, err := get.CombinedOutput()
	first, no := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || no != nil || first > 100 {
		t.Errorf("the pod of helm test says %q, %v; want an ID", out, err)
	}

	scraped := o.Monitor.Spec.Endpoints[0].Path
	if code, _ := ask(http, scraped, ""); code != 401 {
		t.Errorf("metrics without a token: %d", code)
	}
	if code, text := ask(http, scraped, "t"); code != 200 || !strings.Contains(text, "natsid_ready") {
		t.Errorf("metrics with the token: %d", code)
	}
	gateway := o.Leaf.Deployment.Spec.Template.Spec.Containers[0]
	leafProcess := start(t, gateway, map[string]string{"nats/password": "c\n"})
	await(t, leafProcess, leaf, gateway.ReadinessProbe.HTTPGet.Path, 200)
	code, text := ask(leaf, "/api/segment/get/order", "")
	if id, err := strconv.Atoi(text); code != 200 || err != nil || id <= first || id > 100 {
		t.Errorf("Leaf's path answers %d %q, want an ID above %d", code, text, first)
	}

	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if <-worker.ended; worker.err != nil {
		t.Errorf("stopped, the worker ends with %v", worker.err)
	}
	grace := time.Duration(*o.Set.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if took := time.Since(begin); took > grace {
		t.Errorf("the stop took %v, and Kubernetes kills after %v", took, grace)
	}
}

// start starts natsid as a container would: with its arguments and variables alone.
func start(t *testing.T, c corev1.Container, secrets map[string]string) *process {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "natsid"), c.Args...)
	cmd.Env = environ(t, c, secrets)
	return launch(t, cmd)
}

// environ returns the variables of a container, with folders of this test in place of its volumes.
func environ(t *testing.T, c corev1.Container, secrets map[string]string) (all []string) {
	t.Helper()
	etc := t.TempDir()
	for name, value := range env(t, c) {
		if file, isFile := strings.CutPrefix(value, "/etc/natsid/"); isFile {
			value = filepath.Join(etc, file)
			err := os.MkdirAll(filepath.Dir(value), 0o700)
			if err == nil {
				err = os.WriteFile(value, []byte(secrets[file]), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if name == "NATSID_DATA" {
			value = t.TempDir()
		}
		all = append(all, name+"="+value)
	}
	return slices.Sorted(slices.Values(all))
}

// startNATS starts a nats-server with JetStream, and returns once it listens.
func startNATS(t *testing.T, port, more string) *process {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: 127.0.0.1:%s\njetstream { store_dir: %q }\n%s\n", port, dir, more)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := launch(t, exec.Command(filepath.Join(bin, "nats-server"), "-c", conf))
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
			return server
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A process is a command that was started.
type process struct {
	*exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how it ended, after that
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// launch starts a command, which ends with the test.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended by itself
		<-p.ended
	})
	return p
}

// await waits until a path is answered with a code.
func await(t *testing.T, worker *process, port, path string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		code, text := ask(port, path, "")
		if code == want {
			return
		}
		if worker.hasEnded() || time.Now().After(end) {
			t.Fatalf("%s answers %d %q, want %d; has the worker ended? %v", path, code, text, want, worker.hasEnded())
		}
	}
}

// ask returns the answer to a request, 0 without one.
func ask(port, path, token string) (code int, text string) {
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// port returns a port on which nothing listens.
func port(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
