package cli_test

import (
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
