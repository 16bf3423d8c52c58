package cli_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// wantJSON runs a command with --json. It checks that one value of the type that is documented for the command is
// printed, on one line, and that it matches a regular expression. It returns the line.
func wantJSON(t *testing.T, want string, args ...string) string {
	t.Helper()
	var got result
	asked := func() (right bool) {
		got = answered(t, append(args, "--json")...)
		return got.code == 0 && regexp.MustCompile(want).MatchString(strings.TrimSpace(got.out))
	}
	line := strings.Join(args, " ")
	// A busy worker answers too late.
	if strings.HasPrefix(line, "workers") || strings.HasPrefix(line, "status") {
		wait.Until(t, line, asked)
	} else {
		asked()
	}
	got.want(t, 0)
	others := func(o cli.Output) bool { return !strings.HasPrefix(line, o.Command) }
	outputs := slices.DeleteFunc(cli.Outputs(), others)
	if len(outputs) == 0 {
		t.Fatalf("%q: no output is documented", args)
	}
	in := json.NewDecoder(strings.NewReader(got.out))
	in.DisallowUnknownFields()
	value := reflect.New(reflect.TypeOf(outputs[len(outputs)-1].Value))
	if err := in.Decode(value.Interface()); err != nil {
		t.Errorf("%q: %s: %v", args, got.out, err)
	}
	right := regexp.MustCompile(want).MatchString(strings.TrimSpace(got.out))
	if strings.Count(got.out, "\n") != 1 || in.More() || !right {
		t.Errorf("%q: %s, want %s", args, got.out, want)
	}
	return got.out
}

func TestEachCommandPrintsItsJSON(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	nats := "--nats=" + url
	worker := serve(t, nats, "--name=oslo", "--json")
	number := regexp.MustCompile(`"number":(\d+)`).FindStringSubmatch(worker.line)[1]

	wantJSON(t, `{"tag":"order","step":5,"next_id":"1",.*"description":"of Oslo"`,
		"tag", "create", "order", "--step=5", "--desc=of Oslo", nats)
	wantJSON(t, `^{"runs":\[{"first":"\d+","last":"\d+"}.*\]}$`, "get", "segment", "order", "-n3", nats)
	wantJSON(t, `^{"runs":\[{"first":"\d{15,}","last":"\d+"}\]}$`, "get", "snowflake", nats)
	wantJSON(t, `"next_id":"1000001",.*"disabled":false`, "tag", "update", "order", "--next-id=1000001", nats)
	wantJSON(t, `^\[{"tag":"order",.*}\]$`, "tag", "list", nats)
	wantJSON(t, `^\[{"instance":"oslo",.*"busiest":\[{"tag":"order"`, "tag", "stats", nats)
	wantJSON(t, `^{"tag":"order",.*"rate":70000}`, "tag", "update", "ord*", "--rate=70000", "-y", nats)
	wantJSON(t, `^{"rate":0}$`, "throttle", "off", "-y", nats)
	wantJSON(t, `"disabled":true`, "tag", "delete", "order", "-y", nats)
	wantJSON(t, `^{"workers":\[{"instance":"oslo","number":`+number+`,.*"state":"serving"}\],"registries":`+
		`\[{"registry":"\w+",.*"layout":"41\+10\+12",.*"store":{"kind":"kv",.*"tags":1,"state":"in order"},`+
		`"stages":\[\],"wrong":\[\]}$`, "status", nats)
	wantJSON(t, `"need":"0","offset":"1000000000",.*"dry_run":true}$`, "resume", "--restored", "--dry-run", nats)
	wantJSON(t, `"offset":"5",.*"dry_run":false,"outcome":"resumed"}$`,
		"resume", "--restored", "--bump=5", "--yes", nats)
	wantJSON(t, `"offset":"5",.*"outcome":"in order"}$`, "resume", nats)
	wantJSON(t, `^\[{"number":`+number+`,"instance":"oslo","state":"live",`, "workers", nats)
	wantJSON(t, `"bare":{"per_second":`, "bench", "snowflake", "-c1", "-d50ms", nats)
	wantJSON(t, `"version":"0`, "--version")
	wantJSON(t, `^{"time":"2018.*Z","worker":577,"sequence":0}$`, "decode", "1000000000000004096")
	wantJSON(t, `{"time":".*Z","site":\d,"machine":\d+,"worker":\d+,"business":\d+,"sequence":\d+}`,
		"decode", "--layout=article", "270162187289683973")
	wantJSON(t, `"layout":"41\+6\+6",.*{"field":"machine","bits":6,"capacity":64,`, "layout", "--layout=js53")

	if got := worker.stop(); strings.Count(got.out, "\n") != 1 {
		t.Errorf("serve printed %s", got.out)
	}
	natsid(t, "get", "segment", "order", "--json", nats).want(t, 1, "no worker")
}
