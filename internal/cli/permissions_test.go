package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prints checks that a command prints some texts.
func prints(t *testing.T, args string, texts ...string) {
	t.Helper()
	got := natsid(t, strings.Fields(args)...)
	got.want(t, 0)
	for _, want := range texts {
		if !strings.Contains(got.out, want) {
			t.Errorf("natsid %s: no %q in %s", args, want, got.out)
		}
	}
}

func TestRightsThatAFileLacksArePrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nats.conf")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	diff := func(args ...string) result {
		return natsid(t, append([]string{"permissions", "caller", "--diff=" + file}, args...)...)
	}
	write(natsid(t, "permissions", "caller").out)
	diff().want(t, 0, "")
	if got := diff("--inbox-prefix=_INBOX_a"); got.code != 1 || !strings.Contains(got.err, file+" lacks 1 right") {
		t.Errorf("%+v", got)
	}
	user := func(name, permissions string) string {
		return "{ user: " + name + ", password: p, permissions: { " + permissions + " } }\n"
	}
	inConf := func(users ...string) string { return "authorization { users: [ " + strings.Join(users, "") + " ] }" }
	for permissions, lack := range map[string]string{
		`publish: "id.>", subscribe: "_INBOX.>"`:                                              "",
		`publish: ["id.segment.>", "id.snowflake", "id.snowflake.*"]`:                         `"id.snowflake.>"`,
		`publish: { deny: "id.segment.secret" }`:                                              `"id.segment.>"`,
		`publish: { allow: "id.>" }, subscribe: { allow: "_INBOX.> natsid", deny: "id.> q" }`: `"_INBOX.>"`,
		`publish: { allow: ["id.*.>", "id.snowflake"] }, subscribe: "x"`:                      `"_INBOX.>"`,
	} {
		write(inConf(user("shop", permissions)))
		got := diff()
		if isWhole := lack == ""; isWhole != (got.code == 0) || !strings.Contains(got.out, lack) ||
			strings.Count(got.out, "    \"") > 1 {
			t.Errorf("%s: %+v, want it to lack %s", permissions, got, lack)
		}
	}
	write(inConf(user("a", `publish: "id.>"`), user("b", `publish: "x"`)))
	diff().want(t, 2, "has 2 users: choose one with --of")
	diff("--of=c").want(t, 2, "has no user c")
	diff("--of=a").want(t, 0, "")
	if got := diff("--of=b"); got.code != 1 || !strings.Contains(got.err, file+" lacks 3 rights") {
		t.Errorf("%+v", got)
	}
	write("{")
	diff().want(t, 1, file)
}

func TestRightsArePrintedForServersAndPrograms(t *testing.T) {
	prints(t, "permissions worker --namespace=shop --inbox=_INBOX_a,_INBOX_b",
		"# worker\npermissions: {\n  publish: { allow: [\n", `    "_INBOX_a.>"`, `    "_INBOX_b.>"`,
		`    "shop.segment.> natsid"`, `    "$JS.API.STREAM.CREATE.KV_shop_segments"`)
	prints(t, "permissions caller --format=nsc --inbox-prefix=_INBOX_a",
		"nsc add user --name caller \\\n  --allow-pub 'id.segment.>,id.snowflake,id.snowflake.>' \\\n"+
			"  --allow-sub '_INBOX_a.>'\n")
	prints(t, "permissions worker --json",
		`{"role":"worker","publish":[{"subject":"_INBOX.>","why":"answer requests"}`,
		`{"subject":"id.segment.>","queue":"natsid","why":"serve requests"}`)
	prints(t, "permissions stage --from=A --to=B --into=b.> --create --dead-letter=dead --inbox-prefix=_INBOX_s",
		`"$JS.API.CONSUMER.CREATE.A.>"`, `"$JS.API.STREAM.CREATE.B"`, `"b.>"`, `"dead"`, `"$KV.id_stamp.B"`,
		`"_INBOX_s.>"`)
	prints(t, "permissions worker --no-make-buckets", "id.worker.*")
	out := natsid(t, "permissions", "worker", "--no-make-buckets").out
	if strings.Contains(out, "STREAM.CREATE.KV_id_segments") {
		t.Error(out)
	}
	for flag, want := range map[string]string{
		"stage": "--from and --to", "stage --from=A": "--from and --to",
		"nobody": `"worker","caller","operator","stage"`, "worker --format=xml": `"nats","nsc"`,
		"worker --inbox=_INBOX.>": `--inbox "_INBOX.>": want a prefix`, "caller --namespace=a.b": "namespace",
	} {
		natsid(t, append([]string{"permissions"}, strings.Fields(flag)...)...).want(t, 2, want)
	}
}
