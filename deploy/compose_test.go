// Package deploy_test checks docker-compose.yml, nats.conf, the Dockerfile, the rules of alerts
// and the board against each other and against natsid: they name settings, ports, paths and
// series that no other test would miss.
package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
)

// The rules are those of `docker compose config`, which is this library.
func TestComposeTakesTheFileAndItsPartsAgree(t *testing.T) {
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "..",
		ConfigFiles: []types.ConfigFile{{Filename: "../docker-compose.yml"}},
	}, func(o *loader.Options) { o.SetProjectName("natsid", true) })
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	stores := map[string]bool{}
	for name, s := range project.Services {
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %+v beyond this machine", name, p)
			}
		}
		if strings.HasPrefix(s.Image, "nats:") {
			conf := natsConf(t, *s.Environment["SERVER_NAME"])
			urls = append(urls, fmt.Sprintf("nats://%s:%d", name, conf.Port))
			if !conf.SyncAlways || conf.ServerName != name || len(conf.Routes) != 3 || conf.StoreDir != "/data" {
				t.Errorf("%s: sync always %v, name %q, routes %v, store %s",
					name, conf.SyncAlways, conf.ServerName, conf.Routes, conf.StoreDir)
			}
			grace := time.Duration(*s.StopGracePeriod)
			if s.StopSignal != "SIGUSR2" || conf.LameDuckGracePeriod <= 0 ||
				conf.LameDuckGracePeriod >= conf.LameDuckDuration || conf.LameDuckDuration >= grace {
				t.Errorf("%s: %s, clients stay for %v, leave until %v, and it is killed after %v",
					name, s.StopSignal, conf.LameDuckGracePeriod, conf.LameDuckDuration, grace)
			}
			stores[s.Volumes[1].Source] = true
		}
	}
	slices.Sort(urls)
	worker := project.Services["natsid"]
	if got := *worker.Environment["NATS_URL"]; got != strings.Join(urls, ",") || len(urls) != 3 || len(stores) != 3 {
		t.Errorf("NATS_URL %s, servers %v, stores %v", got, urls, stores)
	}
	// Replicas would share a named volume, which one alone can lock, and a name.
	if v := worker.Volumes; len(v) != 1 || v[0].Source != "" || v[0].Target != imageEnv(t)["NATSID_DATA"] {
		t.Errorf("the workers have the volumes %+v, want one for each, without a name", v)
	}
	known := readFile(t, "../docs/reference.md") // a test of the main module holds it against the command line
	for _, name := range slices.Concat(slices.Collect(maps.Keys(worker.Environment)),
		slices.Collect(maps.Keys(imageEnv(t)))) {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "NATSID_")), "_", "-")
		if name != "PATH" && !strings.Contains(known, "`"+name+"`") && !strings.Contains(known, "`"+flag+"`") ||
			name == "NATSID_NAME" {
			t.Errorf("%s is set, which no flag of natsid reads, or which replicas would share", name)
		}
	}
}

func TestPrometheusTakesItsConfiguration(t *testing.T) {
	promtool, dir := needs(t, "promtool"), t.TempDir()
	text := strings.NewReplacer("/etc/prometheus/", dir+"/", "/run/page-token", dir+"/token").
		Replace(readFile(t, "prometheus.yml"))
	for name, body := range map[string]string{
		"prometheus.yml": text, "alerts.yml": readFile(t, "alerts.yml"), "token": "natsid",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "check", "config", dir+"/prometheus.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTheImageRunsAsAnOrdinaryUserAndKeepsItsDataInAVolume(t *testing.T) {
	env, file := imageEnv(t), readFile(t, "../Dockerfile")
	mod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "../go.mod"))
	_, port, _ := strings.Cut(env["NATSID_HTTP"], ":")
	for _, line := range []string{
		"FROM golang:" + mod[1] + " AS build", // the image's go downloads no newer one
		"USER 65532:65532",
		"VOLUME " + env["NATSID_DATA"],
		"EXPOSE " + port,
		`ENTRYPOINT ["natsid"]`,
	} {
		if !strings.Contains(file, "\n"+line+"\n") {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}
	if !strings.Contains(file, "CGO_ENABLED=0 ") {
		t.Error("an image from scratch has no C library")
	}
}

// natsConf reads nats.conf as the server of that name would.
func natsConf(t *testing.T, name string) *server.Options {
	t.Helper()
	t.Setenv("SERVER_NAME", name)
	conf, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

// imageEnv returns what the Dockerfile sets.
func imageEnv(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^ENV (.*)$`).FindAllStringSubmatch(readFile(t, "../Dockerfile"), -1) {
		for pair := range strings.FieldsSeq(line[1]) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
	}
	return env
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
