package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
)

func TestConfigShowsWhatIsInForceAndWhereItComesFrom(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	dir := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	context := `{"url":"nats://n9","creds":"/tmp/a.creds","inbox_prefix":"_INBOX_me"}`
	if err := os.WriteFile(filepath.Join(dir, "prod.json"), []byte(context), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NATSID_DEADLINE", "2s\r")
	t.Setenv("NATSID_HORIZON", "5m")
	t.Setenv("NATSID_HTTP", "")
	file := configFile(t, "nats: [nats://n1, nats://n2]", "deadline: 3s", "horizon: 4m", "site: 1", "layout: article",
		"js-api-prefix: JS.hub.API")
	args := []string{"config", "--config", file, "--context=prod", "--horizon=2m", "--auto-create-tags=a.*"}
	got := natsid(t, args...)
	got.want(t, 0, "natsid.yaml:1: nats takes precedence over url of context prod")
	for _, want := range []string{
		`nats +nats://n1,nats://n2 +` + file + `:1`,
		`deadline +2s +NATSID_DEADLINE`,
		`http +"" +NATSID_HTTP`,
		`horizon +2m +--horizon`,
		`js-prefix +JS\.hub\.API +` + file + `:6: js-api-prefix`,
		`creds +/tmp/a\.creds +creds of context prod`,
		`epoch +2018-09-21T16:00:00Z +default`,
		`auto-create-tags +a\.\* +--auto-create-tags`,
		`max-batch +100000 +default`,
		`name +- +default`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(got.out) {
			t.Errorf("%s\nwant %s", got.out, want)
		}
	}
	if lines := strings.Count(got.out, "\n"); lines != 1+len(app.Settings()) {
		t.Errorf("%d lines for %d settings", lines, len(app.Settings()))
	}
	wantJSON(t, `{"setting":"deadline","value":"2s","from":"environment","place":"NATSID_DEADLINE"}`, args...)
	natsid(t, append(args, "--site=9")...).want(t, 2, "--site 9: want 0 to 3")
}

func TestASwitchIsReadAsPeopleWriteIt(t *testing.T) {
	for text, want := range map[string]string{
		"on": "true", "Yes": "true", "1": "true", "off": "false", "no": "false", "FALSE": "false", "offers": "offers",
	} {
		file := configFile(t, "auto-create-tags: "+text)
		for _, args := range [][]string{{"--auto-create-tags=" + text}, {"--config", file}} {
			got := natsid(t, append([]string{"config"}, args...)...)
			if !regexp.MustCompile(`(?m)^auto-create-tags +` + want + ` `).MatchString(got.out) {
				t.Errorf("%v: %s, want %s", args, got.out, want)
			}
		}
	}
}

func TestConfigHidesEverySecret(t *testing.T) {
	for _, secret := range [][]string{
		{"--nats=nats://me:hunter2@n1"}, {"--nats=nats://n0,nats://me:hunter2,9,hunter2@n1"},
		{"--nats=nats://n0:1,me:5,hunter2@n1"}, {"--nats=nats://hunter2@n1"}, {"--user=hunter2"},
		{"--user=me", "--password=hunter2"}, {"--token=hunter2"},
		{"--mysql=leaf:hunter2@tcp(db)/leaf"},
	} {
		for _, form := range []string{"--json", "--no-auto-create-tags"} {
			got := natsid(t, append([]string{"config", form}, secret...)...)
			if got.want(t, 0); strings.Contains(got.out+got.err, "hunter2") || !strings.Contains(got.out, "nkey") {
				t.Errorf("%q: %s%s", secret, got.out, got.err)
			}
		}
	}
	file := configFile(t, "token: hunter2", "password: hunter2", "mysql: me:hunter2@tcp(db)/leaf", "tlsca: [hunter2",
		"nats: nats://me:hunter2@n1", "nkey: [{hunter2: 1}]", "creds: *hunter2")
	for _, command := range []string{"config", "serve", "get snowflake"} {
		got := natsid(t, append(strings.Fields(command), "--config="+file)...)
		if got.want(t, 2, file); strings.Contains(got.out+got.err, "hunter2") {
			t.Errorf("%s: %s%s", command, got.out, got.err)
		}
	}
	file = configFile(t, "token: hunter2", "user: hunter2", "password: hunter2", "mysql: me:hunter2@tcp(db)/leaf",
		"nats: nats://me:hunter2@n1")
	got := natsid(t, "config", "--config="+file)
	if got.want(t, 2, file); strings.Contains(got.out+got.err, "hunter2") {
		t.Errorf("%s%s", got.out, got.err)
	}
}
