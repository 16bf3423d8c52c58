package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

// shows reports whether a page has all texts.
func shows(url string, texts ...string) func() bool {
	return func() bool {
		code, body := get(url)
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return false
			}
		}
		return code == http.StatusOK
	}
}

func TestThePageOfAnyWorkerShowsAllWorkersAndTheirAlarms(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true})
	var pages [2]string
	var stops [2]func() error
	for i, name := range []string{"alpha", "beta"} {
		cfg := configOn(t, s.ClientURL(), t.TempDir())
		cfg.Name, cfg.TagPoll = name, time.Second
		pages[i], stops[i] = "http://"+cfg.HTTP, startWith(t, cfg)
		waitFor(t, "a worker is ready", ok(pages[i]+"/readyz"))
	}
	nc := connectTo(t, s.ClientURL())
	if _, err := nc.RequestWithContext(patient(t), subjects.DefaultNamespace.Segment("seat"), nil); err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		waitFor(t, "both are on the page", shows(page+"/", "2 of 2 answered", "alpha", "beta", "serving"))
		waitFor(t, "the tag is listed", shows(page+"/tags", "/tag?name=seat"))
		waitFor(t, "its ranges are shown", shows(page+"/tag?name=seat", "Ranges in memory", "1–1000", ">2<"))
		waitFor(t, "a command is shown", shows(page+"/tag?name=seat", "explain --tag seat ID"))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pages[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "stranger.example" // which a stranger made to mean this machine
	if resp, err := http.DefaultClient.Do(req); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
		t.Errorf("by the name of a stranger: %d, want 403", resp.StatusCode)
	}
	for _, r := range [][2]string{{"id.tag.create", `{"tag":"full","max":10}`}, {"id.segment.full", "10"}} {
		if _, err := nc.RequestWithContext(patient(t), r[0], []byte(r[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range pages {
		waitFor(t, "the alarm is shown", shows(page+"/", "#tag-fills-up", "Wrong now:", "tag full: 100%"))
	}
	_, status := get(pages[0] + "/")
	registry := regexp.MustCompile(`Registry <code>(\w+)`).FindStringSubmatch(status)
	if out := command(t, "resume", "--nats", s.ClientURL()); registry == nil || !strings.Contains(out, registry[1]) {
		t.Errorf("the page shows the registry %v, and natsid resume: %s", registry, out)
	}
	if err := stops[1](); err != nil {
		t.Error(err)
	}
	waitFor(t, "a worker that has stopped is forgotten", shows(pages[0]+"/", "1 of 1 answered"))
	s.Shutdown()
	waitFor(t, "without NATS a worker shows itself", shows(pages[0]+"/", "1 of 1 answered",
		"The worker numbers cannot be read: not connected to NATS"))
}

func TestThePageAndMetricsWantTheToken(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded, open := configOn(t, s.ClientURL(), t.TempDir()), configOn(t, s.ClientURL(), t.TempDir())
	alone := configOn(t, s.ClientURL(), t.TempDir())
	guarded.HTTPTokenFile = file
	open.HTTP = strings.Replace(open.HTTP, "127.0.0.1", "0.0.0.0", 1)
	startWith(t, guarded)
	startWith(t, open)
	startWith(t, alone)
	openHTTP := strings.Replace(open.HTTP, "0.0.0.0", "127.0.0.1", 1)
	for _, tc := range []struct {
		what, url string
		want      int
	}{
		{"the page without the token", guarded.HTTP + "/", 401},
		{"another view without it", guarded.HTTP + "/tags", 401},
		{"metrics without it", guarded.HTTP + "/metrics", 401},
		{"health wants none", guarded.HTTP + "/healthz", 200},
		{"readiness wants none", guarded.HTTP + "/readyz", 200},
		{"the page with the token", "anyone:secret@" + guarded.HTTP + "/", 200},
		{"metrics with it", "anyone:secret@" + guarded.HTTP + "/metrics", 200},
		{"with another one", "anyone:other@" + guarded.HTTP + "/", 401},
		{"the page where others reach it", openHTTP + "/", 403},
		{"another view there", openHTTP + "/tags", 404},
		{"metrics there", openHTTP + "/metrics", 200},
		{"profiles without the token", guarded.HTTP + "/debug/pprof/heap", 401},
		{"profiles with it", "anyone:secret@" + guarded.HTTP + "/debug/pprof/goroutine?debug=1", 200},
		{"the command line, which may hold passwords", "anyone:secret@" + guarded.HTTP + "/debug/pprof/cmdline", 404},
		{"profiles where others reach them", openHTTP + "/debug/pprof/heap", 404},
		{"the page on this machine alone", alone.HTTP + "/", 200},
		{"profiles without a token to demand", alone.HTTP + "/debug/pprof/", 404},
	} {
		got := 0
		waitFor(t, tc.what, func() bool { got, _ = get("http://" + tc.url); return got != 0 && got != 503 })
		if got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, got, tc.want)
		}
	}
}

func TestATokenFileThatIsMissingEndsTheStart(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true})
	cfg := configOn(t, s.ClientURL(), t.TempDir())
	cfg.HTTPTokenFile = filepath.Join(t.TempDir(), "none")
	err := app.Run(patient(t), cfg)
	if err == nil || !strings.Contains(err.Error(), "--http-token-file cannot be used") {
		t.Errorf("the start ended with %v", err)
	}
}
