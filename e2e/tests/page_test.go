package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/wait"
)

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
		wait.Until(t, tc.what, func() bool { got, _ = get("http://" + tc.url); return got != 0 && got != 503 })
		if got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, got, tc.want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+alone.HTTP, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "stranger.example" // which a stranger made to mean this machine
	if resp, err := http.DefaultClient.Do(req); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
		t.Errorf("by the name of a stranger: %d, want 403", resp.StatusCode)
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
