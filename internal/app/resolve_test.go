package app_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
)

func TestTheHigherSourceDecidesAmongWhatExcludesEachOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(file, []byte(`{"url":"nats://ctx","user":"u","password":"p","nkey":"n",
		"ca":"ca","jetstream_domain":"d","inbox_prefix":"i","user_seed":"s"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const flag, env, config = app.FromFlag, app.FromEnv, app.FromFile
	type given = map[string]app.Given
	ctx := app.Given{Text: file, From: flag}
	for law, tc := range map[string]struct {
		given given
		want  string // flag=text of all that is left, but the context
		said  string // what took precedence, by words
		fault string
	}{
		"a context alone": {
			given{"context": ctx},
			"inbox-prefix=i js-domain=d nats=nats://ctx nkey=n password=p tlsca=ca user=u",
			"", ""},
		"above a context stands all else": {
			given{"context": ctx, "nats": {Text: "nats://me", From: config, Place: "x.yaml:1: nats"},
				"tlsca": {Text: "ca", From: env}},
			"inbox-prefix=i js-domain=d nats=nats://me nkey=n password=p tlsca=ca user=u",
			"x.yaml:1: nats takes precedence over url of context", ""},
		"another way to sign": {
			given{"context": ctx, "creds": {Text: "c", From: env, Place: "NATS_CREDS"}},
			"creds=c inbox-prefix=i js-domain=d nats=nats://ctx password=p tlsca=ca user=u",
			"NATS_CREDS takes precedence over nkey of context", ""},
		"a token in place of a user, a file in place of a text": {
			given{"context": ctx, "token-file": {Text: "f", From: flag}},
			"inbox-prefix=i js-domain=d nats=nats://ctx nkey=n tlsca=ca token-file=f", "", ""},
		"another way to JetStream": {
			given{"context": ctx, "js-prefix": {Text: "p", From: flag}},
			"inbox-prefix=i js-prefix=p nats=nats://ctx nkey=n password=p tlsca=ca user=u",
			"--js-prefix takes precedence over jetstream_domain", ""},
		"two ways of one source": {
			given{"creds": {Text: "c", From: flag}, "nkey": {Text: "n", From: flag}},
			"", "", "--creds and --nkey exclude each other"},
		"a text and its file": {
			given{"user": {Text: "u", From: env}, "password": {Text: "p", From: env},
				"password-file": {Text: "f", From: env}},
			"", "", "--password and --password-file exclude"},
		"credentials and a token together, for an auth callout": {
			given{"creds": {Text: "c", From: flag}, "token": {Text: "t", From: flag}}, "creds=c token=t", "", ""},
		"a user above that of the URLs": {
			given{"nats": {Text: "tls://a:b@h,c:d@i,j", From: env}, "user": {Text: "u", From: flag}},
			"nats=tls://h,i,j user=u", "--user takes precedence over the user in --nats", ""},
		"the user of the URLs above another": {
			given{"nats": {Text: "nats://a:b@h", From: flag}, "user": {Text: "u", From: env},
				"password": {Text: "p", From: env}},
			"nats=nats://a:b@h", "the user in --nats takes precedence over --user", ""},
		"the user of the URLs above another of the same source": {
			given{"nats": {Text: "nats://a@h", From: env}, "token": {Text: "t", From: env}},
			"nats=nats://a@h", "the user in --nats takes precedence over --token", ""},
		"an unknown context": {
			given{"context": {Text: "none/such", Place: "NATS_CONTEXT"}},
			"", "", `NATS_CONTEXT: there is no context "none/such"`},
	} {
		t.Run(law, func(t *testing.T) {
			before := maps.Clone(tc.given)
			all, said, err := app.Resolve(tc.given)
			if tc.fault != "" || err != nil {
				if err == nil || tc.fault == "" || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("%v, want %q", err, tc.fault)
				}
				return
			}
			var left []string
			for _, s := range app.Settings() {
				if g, ok := all[s.Flag]; ok && s.Flag != "context" {
					left = append(left, s.Flag+"="+g.Text)
				}
			}
			slices.Sort(left)
			if got := strings.Join(left, " "); got != tc.want {
				t.Errorf("left is %s\nwant    %s", got, tc.want)
			}
			for word := range strings.SplitSeq(tc.said, "; ") {
				if !strings.Contains(strings.Join(said, "\n"), word) {
					t.Errorf("said is %q, want %q", said, word)
				}
			}
			if tc.said == "" && tc.given["context"].Text == "" && len(said) > 0 {
				t.Errorf("said is %q", said)
			}
			if !maps.Equal(before, tc.given) {
				t.Error("what was given has changed")
			}
		})
	}
}

func TestAFileMayUseTheNatsCommandsOtherNamesOfFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "natsid.yaml")
	if err := os.WriteFile(file, []byte("js-api-prefix: a\nserver: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, err := app.ReadFile(app.Given{Text: file})
	if err != nil || given["js-prefix"].Text != "a" || given["nats"].Text != "b" {
		t.Errorf("%v, %v", given, err)
	}
}
