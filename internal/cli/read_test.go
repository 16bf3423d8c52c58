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
	nats, of := "--nats="+serve(t).url, "--format=SO-{id:6}-{check}"
	answered(t, "tag", "create", "so", "--start=42", nats).want(t, 0, "")
	got := answered(t, "get", "segment", "so", of, nats)
	text := strings.TrimSpace(got.out)
	if !strings.HasPrefix(text, "SO-000042-") {
		t.Fatalf("%+v", got)
	}
	if got := natsid(t, "read", text, of); got.out != "42\n" {
		t.Errorf("%+v", got)
	}
	natsid(t, "read", text[:9]+"9"+text[9:], of).want(t, 1, "byte")
	natsid(t, "read", text+"x", of).want(t, 1, "byte 11", "is no text of SO-{id:6}-{check}")
	natsid(t, "read", text).want(t, 2, "want an {id}")
	natsid(t, "read", text, "--format={id}{id:3}").want(t, 2, "format")
	got = answered(t, "get", "segment", "so", of, "-n2", "--json", nats)
	if strings.Count(got.out, `"SO-0000`) != 2 {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "so", "--format={id:1}{check}", nats).want(t, 1, "want 0 to 9")
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

	of := "--format=SO-{mask:k1:9}-{check}"
	answered(t, "tag", "create", "so", nats).want(t, 0, "")
	natsid(t, "get", "segment", "so", of, nats).want(t, 1, "named k1", "--key FILE")
	natsid(t, "get", "segment", "so", of, "--key", k2, nats).want(t, 1, "named k1")
	got := answered(t, "get", "segment", "so", of, "--key", k2, "--key", k1, nats)
	text := strings.TrimSpace(got.out)
	if !regexp.MustCompile(`^SO-\d{9}-\d$`).MatchString(text) || got.err != "" {
		t.Fatalf("%+v", got)
	}
	if got := natsid(t, "read", text, of, "--key", k1); got.out != "1\n" || got.err != "" {
		t.Errorf("%+v", got)
	}
	natsid(t, "read", text, of).want(t, 1, "named k1", "--key FILE")

	if err := os.Chmod(k1, 0o644); err != nil {
		t.Fatal(err)
	}
	got = natsid(t, "read", text, of, "--key", k1)
	if runtime.GOOS != "windows" && !strings.Contains(got.err, "natsid: others can read or write the key file") {
		t.Errorf("no warning of a key that others can read: %+v", got)
	}
	if got.out != "1\n" || strings.Contains(got.err+made.out+made.err, words[3]) {
		t.Errorf("%+v", got)
	}
	natsid(t, "read", text, of, "--key", filepath.Join(dir, "none")).want(t, 1, "read a key")
}
