package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// configFile writes a configuration file and returns its name.
func configFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "natsid.yaml")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestEveryFaultOfAConfigurationFileIsNamedWithItsLine(t *testing.T) {
	file := configFile(t,
		"deadline: soon", "maxbatch: 5", "namespace: a.b", "# a comment", "horizon: 1h", "replicas: 9", "",
		"horizon: 2h", "grants:", "zzzz: 1", "config: other.yaml", "epoch: -5", "http: {a: 1}", "js-prefix: a",
		"js-api-prefix: b")
	got := natsid(t, "serve", "--config", file)
	for _, want := range []string{
		`:1: deadline "soon": want a duration`,
		`:2: maxbatch is no setting: did you mean max-batch?`,
		`:3: namespace "a.b": byte 1 is '.'`,
		`:6: replicas 9: want 0 to 5`,
		`:8: horizon is given on line 5 too`,
		`:9: grants has no value`,
		`:10: zzzz is no setting: `,
		`:11: config cannot stand in the file`,
		`:12: --layout or --epoch: `,
		`:13: http: want a value`,
		`:15: js-api-prefix is the same setting as `,
	} {
		got.want(t, 2, file+want)
	}
	if strings.Count(got.err, file) != 12 {
		t.Errorf("%s", got.err)
	}
	natsid(t, "get", "snowflake", "--config", file).want(t, 2, file+":3: ", file+":10: ")
	natsid(t, "decode", "5", "--config", file).want(t, 2, file+":10: ")
	natsid(t, "serve", "--config", file+"x").want(t, 2, "--config: open "+file+"x: no such file")
	t.Setenv("NATSID_CONFIG", file+"x")
	natsid(t, "serve").want(t, 2, "NATSID_CONFIG: open "+file+"x: no such file")
	answered(t, "--version").want(t, 0, "")
}

func TestServeAndCommandsTakeTheirSettingsFromTheFile(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	file := configFile(t, "nats:", "  - "+url, "namespace: filed", "auto-create-tags: order*",
		"max-batch: 10")
	s := serve(t, "--config", file)
	s.says(t, "joined, from "+file+":1: nats; ", "filed.segment.order")
	answered(t, "get", "segment", "order", "--config", file).want(t, 0, "")
	natsid(t, "get", "segment", "other", "--config", file).want(t, 3, "404")
	m, err := natstest.JetStream(t, url).Conn().Request("filed.segment.order", []byte("11"), time.Minute)
	if err != nil || subjects.ParseError(m.Header) == nil {
		t.Errorf("%+v, %v, want a refusal of more than 10", m, err)
	}
	natsid(t, "get", "segment", "order", "--config", file, "--nats", nowhere(t)).want(t, 1, "cannot reach")
}
