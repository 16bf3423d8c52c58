package cli_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
)

// Operators have these in their scripts. A new setting gets a line here; a line
// that changes is a breaking change.
const promisedSettings = `
nats NATS_URL
context NATS_CONTEXT
user NATS_USER
password NATS_PASSWORD
password-file NATS_PASSWORD_FILE
token NATS_TOKEN
token-file NATS_TOKEN_FILE
creds NATS_CREDS
nkey NATS_NKEY
tlsca NATS_CA
tlscert NATS_CERT
tlskey NATS_KEY
inbox-prefix NATSID_INBOX_PREFIX
js-domain NATSID_JS_DOMAIN
js-prefix NATSID_JS_PREFIX
config NATSID_CONFIG
namespace NATSID_NAMESPACE id
listen NATSID_LISTEN 127.0.0.1:4222
listen-conf NATSID_LISTEN_CONF
data NATSID_DATA natsid-data
http NATSID_HTTP 127.0.0.1:8080
http-token-file NATSID_HTTP_TOKEN_FILE
name NATSID_NAME
replicas NATSID_REPLICAS 0
grants NATSID_GRANTS 30d
registry NATSID_REGISTRY
mysql NATSID_MYSQL
mysql-file NATSID_MYSQL_FILE
mysql-ca NATSID_MYSQL_CA
mysql-cert NATSID_MYSQL_CERT
mysql-key NATSID_MYSQL_KEY
auto-create-tags NATSID_AUTO_CREATE_TAGS
tag-poll NATSID_TAG_POLL 1m
max-step NATSID_MAX_STEP 1000000
layout NATSID_LAYOUT leaf
epoch NATSID_EPOCH
site NATSID_SITE 0
numbers NATSID_NUMBERS
horizon NATSID_HORIZON 5m
max-clock-skew NATSID_MAX_CLOCK_SKEW 1s
max-batch NATSID_MAX_BATCH 100000
deadline NATSID_DEADLINE 1.5s
log-level NATSID_LOG_LEVEL info
log-format NATSID_LOG_FORMAT text
`

func TestFlagsEnvironmentAndDefaultsAreAsPromised(t *testing.T) {
	var got strings.Builder
	got.WriteByte('\n')
	for _, s := range app.Settings() {
		got.WriteString(strings.TrimSpace(s.Flag+" "+s.Env+" "+s.Default) + "\n")
	}
	if got.String() != promisedSettings {
		t.Errorf("the settings are%s", got.String())
	}
}

func TestEachSettingIsInTheHelpOfServe(t *testing.T) {
	help := strings.Join(strings.Fields(natsid(t, "help", "serve").out+natsid(t, "help", "connection").out), " ")
	for _, s := range app.Settings() {
		flag := "--" + s.Flag
		if s.Bare {
			flag = "--[no-]" + s.Flag
		}
		for _, want := range []string{flag, s.Default, s.Range, "($" + s.Env + ")", strings.TrimSuffix(s.Help, ".")} {
			if !strings.Contains(help, want) {
				t.Errorf("no %q in the help of serve", want)
			}
		}
		if !strings.HasSuffix(s.Help, ".") || s.Group == "" {
			t.Errorf("--%s: help %q in group %q, want sentences and a group", s.Flag, s.Help, s.Group)
		}
	}
}

func TestATextThatCannotBeReadIsNamedWithThePlaceWhereItWasWritten(t *testing.T) {
	for flag, want := range map[string]string{
		"--deadline=soon":      `--deadline "soon": want a duration`,
		"--replicas=two":       `--replicas "two": want a whole number`,
		"--log-format=maybe":   `--log-format "maybe": want text or json`,
		"--epoch=soon":         `--epoch "soon": want a date`,
		"--log-level=loud":     `--log-level "loud"`,
		"--max-step=0":         `--max-step 0: want 1 to `,
		"--deadline=1ms":       `--deadline 1ms: want 100ms to 1m`,
		"--auto-create-tags=[": `--auto-create-tags "[" is not a pattern`,
	} {
		natsid(t, "serve", flag).want(t, 2, want)
	}
	natsid(t, "serve", "--deadline=soon", "--log-format=maybe").want(t, 2, "--deadline", "--log-format")
	t.Setenv("NATSID_HORIZON", "5")
	natsid(t, "serve", "--deadline=soon").want(t, 2, `--deadline "soon"`, `NATSID_HORIZON "5": want a duration`)
}
