package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTextsArePrintedAndReadBack(t *testing.T) {
	t.Parallel()
	nats, of := "--nats="+serve(t).url, "--format=SO-{id:6}-{check}"
	answered(t, "tag", "create", "so", "--start=42", nats).want(t, 0, "")
	got := answered(t, "get", "segment", "so", of, nats)
	text := strings.TrimSpace(got.out)
	if !strings.HasPrefix(text, "SO-0000") {
		t.Fatalf("%+v", got)
	}
	got = natsid(t, "read", text, of)
	if wantFrom(t, 42, got); got.out != strings.TrimLeft(text[3:9], "0")+"\n" {
		t.Errorf("%+v of %s", got, text)
	}
	natsid(t, "read", text[:9]+"9"+text[9:], of).want(t, 1, "byte")
	natsid(t, "read", text+"x", of).want(t, 1, "byte 11", "is no text of SO-{id:6}-{check}")
	natsid(t, "read", text).want(t, 2, "--format is missing")
	natsid(t, "read", text, "--format={id}{id:3}").want(t, 2, "format")
	got = answered(t, "get", "segment", "so", of, "-n2", "--json", nats)
	if strings.Count(got.out, `"SO-0000`) != 2 {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "so", "--format={id:1}{check}", nats).want(t, 1, "want 0 to 9")
	natsid(t, "tag", "create", "both", "--daily", "--monthly", nats).want(t, 2, "--daily")
	answered(t, "tag", "create", "few", "--min=10", "--max=19", "--max-hole=4", nats).want(t, 0, "")
	line(t, `few +10 +1000 .* from 10, up to 19, holes up to 4 +-`, "tag", "list", nats)
	answered(t, "tag", "update", "few", "--max-hole=8", nats).want(t, 0, "")
}

func TestMaskedTextsArePrintedAndReadBackWithTheKey(t *testing.T) {
	t.Parallel()
	nats, dir, of := "--nats="+serve(t).url, t.TempDir(), "--format=SO-{mask:k1:9}-{check}"
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--key=" + name + "=" + path
	}
	k1, k2 := file("k1", strings.Repeat("1", 64)+"\n"), file("k2", strings.Repeat("2", 64))
	answered(t, "tag", "create", "so", nats).want(t, 0, "")
	natsid(t, "get", "segment", "so", of, k2, nats).want(t, 2, "no key named k1")
	got := answered(t, "get", "segment", "so", of, k2, k1, nats)
	text := strings.TrimSpace(got.out)
	if !regexp.MustCompile(`^SO-\d{9}-\d$`).MatchString(text) || got.err != "" {
		t.Fatalf("%+v", got)
	}
	read := natsid(t, "read", text, of, k1, "--tag=so")
	wantFrom(t, 1, read)
	if got := natsid(t, "read", text, of, k1, "--tag=other"); got.out == read.out {
		t.Errorf("the mask of another tag: %+v", got)
	}
	natsid(t, "read", text, of, k1).want(t, 2, "a mask is that of a tag")
	natsid(t, "read", text, of, "--tag=so", file("k1", "secret")).want(t, 1, "is not hexadecimal digits")
	natsid(t, "read", text, of, "--tag=so", file("k1", "0123")).want(t, 2, "it has 2 bytes, want 32")
	natsid(t, "read", text, of, "--tag=so", "--key=k1="+filepath.Join(dir, "none")).want(t, 1, "read the key k1")
}
