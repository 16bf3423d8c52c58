package natscontext

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// home makes a directory of contexts.
func home(t *testing.T) (dir string) {
	t.Helper()
	root := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", root)
	dir = filepath.Join(root, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// All fields that `nats context save` writes, version 0.4.0, with what is read of each.
func TestEachFieldIsRead(t *testing.T) {
	dir := home(t)
	fields := map[string]string{ // what is read of each
		`"url": "nats://a,nats://b"`: "nats://a,nats://b", `"token": "x"`: "x", `"user": "x"`: "x",
		`"password": "x"`: "x", `"creds": "x"`: "x", `"nkey": "x"`: "x", `"cert": "x"`: "x", `"key": "x"`: "x",
		`"ca": "x"`: "x", `"jetstream_domain": "x"`: "x", `"jetstream_api_prefix": "x"`: "x",
		`"inbox_prefix": "x"`: "x",
		`"user_seed": "x"`:    "", // beside a JWT
		`"name": "x"`:         "", // for people, or of other commands
		`"description": "x"`:  "", `"jetstream_event_prefix": "x"`: "", `"color_scheme": "x"`: "",
		`"windows_ca_certs_match": []`: "",
	}
	for line, text := range fields {
		want := map[string]string{}
		if text != "" {
			want[strings.Split(line, `"`)[1]] = text
		}
		write(t, filepath.Join(dir, "one.json"), "{\n"+line+"}")
		if got, err := Read("one"); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for line, word := range map[string]string{
		`"socks_proxy": "x"`:        "socks_proxy",
		`"user_jwt": "x"`:           "user_jwt",
		`"tls_first": true`:         "tls_first",
		`"windows_cert_store": "x"`: "windows_cert_store",
		`"creds": "op://x/secret"`:  `"creds", which is not a file`,
		`"nsc": "nsc://o/a/u"`:      `"nsc" says; remove it`,
		`"url": 5`:                  "validate",
		`"password": "secret`:       "validate",
		`"password": "secret", 5`:   "validate",
	} {
		write(t, filepath.Join(dir, "one.json"), "{\n"+line+"}")
		got, err := Read("one")
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %+v, %v, want %s named", line, got, err, word)
		}
	}
	if n := len(read) + len(refused); n != 17 {
		t.Errorf("a context has %d fields: give each a line here", n)
	}
}

func TestFilesAreFoundAsTheNATSCommandFindsThem(t *testing.T) {
	dir := home(t)
	t.Setenv("HOME", "/home/me")
	t.Setenv("TEAM", "red")
	write(t, filepath.Join(dir, "files.json"),
		`{"creds":"~/a.creds","nkey":"$TEAM.nk","cert":"~/c","key":"/k","ca":"b~"}`)
	want := map[string]string{
		"creds": "/home/me/a.creds", "nkey": "red.nk", "cert": "/home/me/c", "key": "/k", "ca": "b~",
	}
	for _, name := range []string{"files", filepath.Join(dir, "files.json")} {
		if got, err := Read(name); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"other", "", "../files", "a/b", "other.json"} {
		_, err := Read(name)
		text := fmt.Sprint(err)
		if !strings.Contains(text, fmt.Sprintf("%q", name)) || !strings.Contains(text, dir) {
			t.Errorf("%q: %v, want the directory of contexts", name, err)
		}
	}
	t.Setenv("XDG_CONFIG_HOME", "")
	if _, err := Read("files"); !strings.Contains(fmt.Sprint(err), "/home/me/.config/nats/context") {
		t.Errorf("without XDG_CONFIG_HOME: %v", err)
	}
}
