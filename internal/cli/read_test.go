package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestTextsArePrintedAndReadBack(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	answered(t, "tag", "create", "so", "--start=42", "--format=SO-{id:6}-{check}", nats).want(t, 0, "")
	got := answered(t, "get", "segment", "so", "--text", nats)
	text := strings.TrimSpace(got.out)
	if !strings.HasPrefix(text, "SO-000042-") {
		t.Fatalf("%+v", got)
	}
	for _, from := range [][]string{{"--tag=so", nats}, {"--format=SO-{id:6}-{check}"}} {
		if got := natsid(t, append([]string{"read", text}, from...)...); got.out != "42\n" {
			t.Errorf("%v: %+v", from, got)
		}
	}
	natsid(t, "read", text[:9]+"9"+text[9:], "--tag=so", nats).want(t, 1, "byte")
	natsid(t, "read", text+"x", "--tag=so", nats).want(t, 1, "byte 11")
	natsid(t, "read", text).want(t, 2, "--tag or --format")
	natsid(t, "read", text, "--format={id}{id:3}").want(t, 2, "format")
	natsid(t, "read", text, "--tag=other", nats).want(t, 1, "404")
	got = answered(t, "get", "segment", "so", "--text", "-n2", "--json", nats)
	if strings.Count(got.out, "SO-0000") != 2 {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "create", "cyclic", "--cycle", nats).want(t, 2, "never repeats", "--daily")
	natsid(t, "tag", "create", "both", "--daily", "--monthly", nats).want(t, 2, "--daily")
	answered(t, "tag", "create", "few", "--min=10", "--max=19", "--max-hole=4", nats).want(t, 0, "")
	line(t, `few +10 +1000 +4 .* from 10, up to 19 *`, "tag", "list", nats)
	natsid(t, "tag", "update", "few", "--max-hole=8", nats).want(t, 0, "")
}

func TestMaskedTextsArePrintedAndReadBackWithTheKey(t *testing.T) {
	t.Parallel()
	nats, dir := "--nats="+serve(t).url, t.TempDir()
	k1, k2 := filepath.Join(dir, "k1.key"), filepath.Join(dir, "k2.key")
	wantJSON(t, `^{"name":"k2","fingerprint":"[0-9a-f]{16}"}$`, "key", "new", "k2", k2)
	made := natsid(t, "key", "new", "k1", k1)
	file, err := os.ReadFile(k1)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(file)) // version, name, fingerprint, secret
	if made.code != 0 || made.out != "k1 "+words[2]+"\n" {
		t.Errorf("%+v", made)
	}
	natsid(t, "key", "new", "k1", k1).want(t, 1, "file exists")
	natsid(t, "key", "new", "K 1", filepath.Join(dir, "other")).want(t, 2, "a name is 1 to 32")
	if again, err := os.ReadFile(k1); string(again) != string(file) || err != nil {
		t.Errorf("the key was overwritten: %v", err)
	}

	answered(t, "tag", "create", "so", "--format=SO-{mask:k1:9}-{check}", nats).want(t, 0, "")
	natsid(t, "get", "segment", "so", "--text", nats).want(t, 1, "named k1", "--key FILE")
	natsid(t, "get", "segment", "so", "--text", "--key", k2, nats).want(t, 1, "named k1")
	natsid(t, "get", "segment", "so", "--key", k1, nats).want(t, 2, "--text")
	got := answered(t, "get", "segment", "so", "--text", "--key", k2, "--key", k1, nats)
	text := strings.TrimSpace(got.out)
	if !regexp.MustCompile(`^SO-\d{9}-\d$`).MatchString(text) || got.err != "" {
		t.Fatalf("%+v", got)
	}
	for _, of := range []string{"--tag=so", "--format=SO-{mask:k1:9}-{check}"} {
		if got := natsid(t, "read", text, of, "--key", k1, nats); got.out != "1\n" || got.err != "" {
			t.Errorf("%s: %+v", of, got)
		}
		natsid(t, "read", text, of, nats).want(t, 1, "named k1", "--key FILE")
	}
	natsid(t, "read", text+"0", "--tag=so", "--key", k1, nats).want(t, 1, "is no text of SO-{mask:k1:9}-{check}")
	natsid(t, "tag", "update", "so", "--format=SO-{mask:k2:9}-{check}", nats).want(t, 1, "is a text of both")

	if err := os.Chmod(k1, 0o644); err != nil {
		t.Fatal(err)
	}
	got = natsid(t, "read", text, "--tag=so", "--key", k1, nats)
	if runtime.GOOS != "windows" && !strings.Contains(got.err, "natsid: others can read or write the key file") {
		t.Errorf("no warning of a key that others can read: %+v", got)
	}
	if got.out != "1\n" || strings.Contains(got.err+made.out+made.err, words[3]) {
		t.Errorf("%+v", got)
	}
	natsid(t, "read", text, "--tag=so", "--key", filepath.Join(dir, "none"), nats).want(t, 1, "read a key")
}
