package cli_test

import (
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

func TestRightsArePrintedForServersAndPrograms(t *testing.T) {
	prints(t, "permissions worker --namespace=shop --inbox=_INBOX_a,_INBOX_b",
		"# worker\npermissions: {\n  publish: { allow: [\n", `    "_INBOX_a.>"`, `    "_INBOX_b.>"`,
		`    "shop.segment.> natsid"`, `    "$JS.API.STREAM.CREATE.KV_shop_segments"`)
	prints(t, "permissions caller --format=nsc --inbox-prefix=_INBOX_a",
		"nsc add user --name caller \\\n  --allow-pub 'id.segment.>,id.snowflake,id.snowflake.>' \\\n"+
			"  --allow-sub '_INBOX_a.>'\n")
	prints(t, "permissions worker --json",
		`{"role":"worker","publish":[{"subject":"$SYS.REQ.USER.INFO","why":"learn what it may do"}`,
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
