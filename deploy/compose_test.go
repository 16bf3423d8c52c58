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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
)

func TestComposesOwnLibraryTakesTheFile(t *testing.T) {
	_, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "..",
		ConfigFiles: []types.ConfigFile{{Filename: "../docker-compose.yml"}},
	}, func(o *loader.Options) { o.SetProjectName("natsid", true) })
	if err != nil {
		t.Error(err)
	}
}

func TestTheServersAreOneClusterThatAcknowledgesOnlyWhatIsOnDisk(t *testing.T) {
	servers := natsServers(t)
	if len(servers) != 3 {
		t.Fatalf("nats-servers %q, want 3: what two of them have survives the third", servers)
	}
	var wantRoutes []string
	for _, name := range servers {
		wantRoutes = append(wantRoutes, "nats://"+name+":6222")
	}
	for _, name := range servers {
		conf := natsConf(t, name)
		if conf.ServerName != name {
			t.Errorf("server name %q of service %s", conf.ServerName, name)
		}
		if !conf.JetStream || conf.StoreDir != "/data" || !conf.SyncAlways {
			t.Errorf("JetStream %v in %q, sync always %v; want true in /data, true",
				conf.JetStream, conf.StoreDir, conf.SyncAlways)
		}
		if conf.Cluster.Name == "" || conf.Cluster.Port != 6222 {
			t.Errorf("cluster %q on port %d, want a name, and 6222", conf.Cluster.Name, conf.Cluster.Port)
		}
		var routes []string
		for _, u := range conf.Routes {
			routes = append(routes, u.String())
		}
		if !slices.Equal(routes, wantRoutes) {
			t.Errorf("routes %q, want %q", routes, wantRoutes)
		}
	}
}

func TestEachServerHasTheConfigurationAndAStoreOfItsOwn(t *testing.T) {
	file := readCompose(t)
	stores := map[string]bool{}
	for _, name := range natsServers(t) {
		s := service(t, file, name)
		command := list(t, s, "command")
		store := ""
		for _, v := range list(t, s, "volumes") {
			from, to, _ := strings.Cut(v, ":")
			switch to {
			case "/data":
				store = from
			case command[1] + ":ro":
				if from != "./deploy/nats.conf" {
					t.Errorf("%s is started with %s", name, from)
				}
			default:
				t.Errorf("%s: volume %s is neither configuration nor store", name, v)
			}
		}
		if len(list(t, s, "volumes")) != 2 || command[0] != "-c" {
			t.Errorf("%s: command %q, volumes %q; want the configuration and a store",
				name, command, list(t, s, "volumes"))
		}
		if _, declared := file["volumes"].(map[string]any)[store]; !declared || stores[store] {
			t.Errorf("%s stores in %q, want a named volume that no other server has", name, store)
		}
		stores[store] = true
	}
}

func TestAServerIsGivenTimeToSendItsClientsAway(t *testing.T) {
	file := readCompose(t)
	for _, name := range natsServers(t) {
		s, conf := service(t, file, name), natsConf(t, name)
		if got := s["stop_signal"]; got != "SIGUSR2" {
			t.Errorf("%s is stopped with %v, want SIGUSR2, lame duck", name, got)
		}
		grace, err := time.ParseDuration(fmt.Sprint(s["stop_grace_period"]))
		if err != nil {
			t.Fatal(err)
		}
		// nats-server's defaults are longer than the grace period.
		stay, leave := conf.LameDuckGracePeriod, conf.LameDuckDuration
		if stay <= 0 || stay >= leave || leave >= grace {
			t.Errorf("%s: clients stay for %v, leave until %v, and it is killed after %v; want them to rise",
				name, stay, leave, grace)
		}
	}
}

func TestEachHealthCheckAsksWhereItsServerAnswers(t *testing.T) {
	file := readCompose(t)
	for _, name := range natsServers(t) {
		conf := natsConf(t, name)
		want := fmt.Sprintf("http://%s:%d/healthz", conf.HTTPHost, conf.HTTPPort)
		check := healthCheck(t, file, name)
		if check[0] != "CMD" || check[1] != "wget" || !strings.HasPrefix(check[len(check)-1], want) {
			t.Errorf("%s: health check %q, want wget of %s", name, check, want)
		}
	}
	if check := healthCheck(t, file, "natsid"); !slices.Equal(check, []string{"CMD", "natsid", "health"}) {
		t.Errorf("natsid: health check %q, want natsid itself: the image has no shell", check)
	}
	// While MySQL creates its database it answers on the socket, not over TCP.
	check := strings.Join(healthCheck(t, file, "mysql"), " ")
	if !strings.Contains(check, "mysqladmin ping -h 127.0.0.1 ") {
		t.Errorf("mysql: health check %q, want a ping over TCP", check)
	}
}

func TestEveryPortIsPublishedOnThisMachineAlone(t *testing.T) {
	file := readCompose(t)
	ports := map[string]string{"natsid": ":8080", "prometheus": ":9090", "grafana": ":3000"}
	for _, name := range natsServers(t) {
		ports[name] = ":" + strconv.Itoa(natsConf(t, name).Port)
	}
	taken := map[string]bool{}
	for name := range file["services"].(map[string]any) {
		s := service(t, file, name)
		for _, door := range []string{"network_mode", "networks"} {
			if s[door] != nil {
				t.Errorf("%s has %s, want the default network alone", name, door)
			}
		}
		inside, isPublic := ports[name]
		if !isPublic {
			if s["ports"] != nil {
				t.Errorf("%s publishes %v, want nothing", name, s["ports"])
			}
			continue
		}
		for _, port := range list(t, s, "ports") {
			here, ok := strings.CutSuffix(port, inside)
			if !ok || !strings.HasPrefix(here, "127.0.0.1:") || taken[here] {
				t.Errorf("%s publishes %s, want its port %s on a port of 127.0.0.1 that is free", name, port, inside)
			}
			taken[here] = true
		}
	}
	if len(taken) != len(ports) {
		t.Errorf("published: %v, want a port of each of %v", taken, ports)
	}
}

// The page of a worker that other containers reach demands a token. Prometheus and the workers read the same one.
func TestThePageAndPrometheusShareAToken(t *testing.T) {
	file := readCompose(t)
	token := service(t, file, "natsid")["environment"].(map[string]any)["NATSID_HTTP_TOKEN_FILE"]
	var conf struct {
		Rules   []string `yaml:"rule_files"`
		Scrapes []struct {
			Authorization struct {
				File string `yaml:"credentials_file"`
			}
			DNS []struct {
				Names []string
				Port  int
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "prometheus.yml")), &conf); err != nil {
		t.Fatal(err)
	}
	if len(conf.Scrapes) != 1 || conf.Scrapes[0].Authorization.File != token || conf.Scrapes[0].DNS[0].Port != 8080 ||
		!slices.Equal(conf.Scrapes[0].DNS[0].Names, []string{"natsid"}) {
		t.Errorf("Prometheus scrapes %+v, want port 8080 of natsid, with the token in %v", conf.Scrapes, token)
	}
	for _, name := range []string{"natsid", "prometheus"} {
		given := fmt.Sprint(service(t, file, name)["configs"])
		if !strings.Contains(given, "target:"+fmt.Sprint(token)) || !strings.Contains(given, "source:page-token") {
			t.Errorf("%s has the configs %s, want page-token at %v", name, given, token)
		}
	}
	for _, v := range append(list(t, service(t, file, "prometheus"), "volumes"),
		list(t, service(t, file, "grafana"), "volumes")...) {
		from, _, _ := strings.Cut(v, ":")
		if !strings.HasPrefix(from, "./") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", from)); err != nil {
			t.Error(err)
		}
	}
	if promtool := needs(t, "promtool"); promtool != "" {
		dir := t.TempDir()
		text := strings.ReplaceAll(readFile(t, "prometheus.yml"), "/etc/prometheus/", dir+"/")
		text = strings.ReplaceAll(text, fmt.Sprint(token), dir+"/token")
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
}

func TestTheWorkersWaitForWhatTheyNeedAndNameIt(t *testing.T) {
	file := readCompose(t)
	servers, worker := natsServers(t), service(t, file, "natsid")
	needs, _ := worker["depends_on"].(map[string]any)
	for _, name := range append(slices.Clone(servers), "mysql") {
		if need, _ := needs[name].(map[string]any); need["condition"] != "service_healthy" {
			t.Errorf("natsid waits for %s: %v, want service_healthy", name, needs[name])
		}
	}
	var urls []string
	for _, name := range servers {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", name, natsConf(t, name).Port))
	}
	env := worker["environment"].(map[string]any)
	if want := strings.Join(urls, ","); env["NATS_URL"] != want {
		t.Errorf("NATS_URL %v, want %s", env["NATS_URL"], want)
	}
	db := service(t, file, "mysql")["environment"].(map[string]any)
	want := fmt.Sprintf("%s:%s@tcp(mysql:3306)/%s", db["MYSQL_USER"], db["MYSQL_PASSWORD"], db["MYSQL_DATABASE"])
	if env["NATSID_MYSQL"] != want {
		t.Errorf("NATSID_MYSQL %v, want %s", env["NATSID_MYSQL"], want)
	}
}

func TestEachWorkerHasADataDirectoryOfItsOwn(t *testing.T) {
	worker := service(t, readCompose(t), "natsid")
	if deploy, _ := worker["deploy"].(map[string]any); deploy["replicas"] != "3" {
		t.Errorf("deploy %v, want 3 replicas", worker["deploy"])
	}
	data := imageEnv(t)["NATSID_DATA"]
	if got := list(t, worker, "volumes"); !slices.Equal(got, []string{data}) {
		t.Errorf("volumes %q, want %s without a name: replicas would share a named one, which one alone can lock",
			got, data)
	}
	if env := worker["environment"].(map[string]any); env["NATSID_DATA"] != nil || env["NATSID_NAME"] != nil {
		t.Errorf("environment %v, want neither directory nor name, which replicas would share", env)
	}
}

func TestEverySettingIsOneThatNatsidReads(t *testing.T) {
	known := map[string]bool{}
	// A test of the main module holds this page against the command line.
	for _, name := range regexp.MustCompile(`NATS[A-Z_]+`).FindAllString(readFile(t, "../docs/reference.md"), -1) {
		known[name] = true
	}
	worker := service(t, readCompose(t), "natsid")
	if worker["command"] != nil || worker["entrypoint"] != nil {
		t.Errorf("command %v, entrypoint %v: want settings in the environment, where this test sees them",
			worker["command"], worker["entrypoint"])
	}
	for where, env := range map[string][]string{
		"docker-compose.yml": slices.Sorted(maps.Keys(worker["environment"].(map[string]any))),
		"Dockerfile":         slices.Sorted(maps.Keys(imageEnv(t))),
	} {
		for _, name := range env {
			if name != "PATH" && !known[name] {
				t.Errorf("%s sets %s, which no flag of natsid reads", where, name)
			}
		}
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

// natsServers returns the names of the services that run nats-server.
func natsServers(t *testing.T) (names []string) {
	t.Helper()
	file := readCompose(t)
	for name := range file["services"].(map[string]any) {
		if image, _ := service(t, file, name)["image"].(string); strings.HasPrefix(image, "nats:") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// natsConf reads nats.conf as the server of that service would.
func natsConf(t *testing.T, name string) *server.Options {
	t.Helper()
	env := service(t, readCompose(t), name)["environment"].(map[string]any)
	t.Setenv("SERVER_NAME", fmt.Sprint(env["SERVER_NAME"]))
	conf, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

func healthCheck(t *testing.T, file map[string]any, name string) []string {
	t.Helper()
	check, _ := service(t, file, name)["healthcheck"].(map[string]any)
	return list(t, check, "test")
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

func service(t *testing.T, file map[string]any, name string) map[string]any {
	t.Helper()
	s, ok := file["services"].(map[string]any)[name].(map[string]any)
	if !ok {
		t.Fatalf("no service %s", name)
	}
	return s
}

func list(t *testing.T, m map[string]any, key string) []string {
	t.Helper()
	l, ok := m[key].([]string)
	if !ok || len(l) == 0 {
		t.Fatalf("%s: %v, want a list", key, m[key])
	}
	return l
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readCompose reads docker-compose.yml. Scalars become strings, and lists of them
// lists of strings.
func readCompose(t *testing.T) map[string]any {
	t.Helper()
	var file map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, "../docker-compose.yml")), &file); err != nil {
		t.Fatal("docker-compose.yml: ", err)
	}
	return plain(file).(map[string]any)
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
		return v
	case []any:
		var list []string
		for _, item := range v {
			list = append(list, fmt.Sprint(item))
		}
		return list
	}
	return fmt.Sprint(v)
}
