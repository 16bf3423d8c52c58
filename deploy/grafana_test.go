package deploy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// A board is what this test reads of a board of Grafana.
type board struct {
	Panels []struct {
		Title   string
		Links   []struct{ URL string }
		Targets []struct{ Expr string }
	}
}

// TestTheBoardAndTheRulesReadAWorker scrapes a worker with Prometheus, asks it what every panel
// of the board asks, and has it evaluate all rules.
func TestTheBoardAndTheRulesReadAWorker(t *testing.T) {
	program, promtool := needs(t, "prometheus"), needs(t, "promtool")
	natsid := build(t, "github.com/natsid/natsid")
	natsURL, worker := startWorker(t, natsid)
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stage := startStage(t, natsid, nc)
	checkExposition(t, promtool, worker)
	checkExposition(t, promtool, stage)
	prom := startPrometheus(t, program, worker, stage)
	var b board
	if err := json.Unmarshal([]byte(readFile(t, "grafana/natsid.json")), &b); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$job", "natsid", "$instance", ".*", "$__rate_interval", "1m")
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			query := fill.Replace(target.Expr)
			prom.until(t, fmt.Sprintf("the panel %q has a value: %s", p.Title, query), func() bool {
				request(t, nc, "id.segment.order", "") // so that there is a rate
				request(t, nc, "id.snowflake", "")
				_, _ = nc.Request("id.segment.order", []byte("x"), patience) // 400
				return len(prom.query(t, query)) > 0
			})
		}
		for _, l := range p.Links {
			entry := l.URL[strings.LastIndex(l.URL, "#")+1:]
			if !strings.Contains(readFile(t, "../docs/operations.md"), "\n### "+entry+"\n") {
				t.Errorf("the panel %q leads to %s, which is no entry of the runbook", p.Title, l.URL)
			}
		}
	}
	prom.until(t, "each rule was evaluated", func() bool { return prom.evaluated(t) })
}

// startWorker starts a worker with its embedded server, and returns the addresses of NATS and of HTTP.
func startWorker(t *testing.T, natsid string) (nats, http string) {
	t.Helper()
	out := run(t, []string{
		"NATSID_DATA=" + t.TempDir(), "NATSID_LISTEN=127.0.0.1:0", "NATSID_HTTP=127.0.0.1:0",
	}, natsid, "--json")
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	var ready struct{ URL, HTTP string }
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return ready.URL, ready.HTTP
}

// startStage starts a stage, and returns its address of HTTP once it copies.
func startStage(t *testing.T, natsid string, nc *nats.Conn) string {
	t.Helper()
	js, err := nc.JetStream()
	if err == nil {
		_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	http := "127.0.0.1:" + port(t)
	run(t, nil, natsid, "stamp", "--nats", nc.ConnectedUrl(), "--from", "ORDERS",
		"--to", "STAMPED", "--create", "--tag", "order", "--http", http)
	prometheus(http).until(t, "the stage copies", func() bool { return isReady(http + "/readyz") })
	return http
}

// isReady reports whether a probe is answered 200.
func isReady(url string) bool {
	resp, err := http.Get("http://" + url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// checkExposition has promtool check what a worker or a stage serves.
func checkExposition(t *testing.T, promtool, addr string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = resp.Body
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A prometheus is the address of one that runs.
type prometheus string

// startPrometheus starts a Prometheus that scrapes a worker and a stage each second, with our rules.
func startPrometheus(t *testing.T, program, worker, stage string) prometheus {
	t.Helper()
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: natsid, static_configs: [{targets: [%q]}]},\n"+
		" {job_name: natsid-stamp, static_configs: [{targets: [%q]}]}]\n", rules, worker, stage)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := prometheus("127.0.0.1:" + port(t))
	run(t, nil, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+string(p), "--log.level=warn")
	p.until(t, "it is ready", func() bool { return isReady(string(p) + "/-/ready") })
	return p
}

func (p prometheus) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("Prometheus, after %v: not true that %s", patience, what)
		}
	}
}

type sample struct{ Metric map[string]string }

// query returns the samples that an expression has now.
func (p prometheus) query(t *testing.T, expr string) []sample {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	if answer.Status != "success" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result
}

// evaluated reports whether all rules were evaluated; a rule that fails ends the test.
func (p prometheus) evaluated(t *testing.T) bool {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	p.get(t, "/api/v1/rules", &answer)
	n := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.LastError != "" {
				t.Fatalf("the rule %s: %s", r.Name, r.LastError)
			}
			if r.Health != "ok" {
				return false
			}
			n++
		}
	}
	return n > len(alerts(t)) // with what is recorded
}

func (p prometheus) get(t *testing.T, path string, answer any) {
	t.Helper()
	resp, err := http.Get("http://" + string(p) + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
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

// port returns a port on loopback that nothing listens on.
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
