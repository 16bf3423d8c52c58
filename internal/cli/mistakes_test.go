package cli_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
)

// A mistake is a command line that people type, and what they must be told: the exit code, and words that name the
// cause or the remedy.
type mistake struct {
	line  string // fields, separated by blanks; an underscore within one stands for a blank, '' for none
	code  int
	words string
}

func (m mistake) check(t *testing.T, global ...string) {
	t.Helper()
	args := strings.Fields(m.line)
	for i := range args {
		args[i] = strings.NewReplacer("_", " ", "''", "").Replace(args[i])
	}
	run := natsid
	if m.code == 3 { // an answer
		run = answered
	}
	r := run(t, append(global, args...)...)
	if r.code != m.code || !strings.Contains(r.err, m.words) {
		t.Errorf("natsid %s: exit code %d, %s; want %d and %q", m.line, r.code, r.err, m.code, m.words)
	}
}

// misuses are command lines that are refused before anything is asked, with a mention of --help.
const misuses = `bogus | --bogus | get | tag | get segment a b | get segment order -n -1 | get segment order -n x
get snowflake -n 0 | get snowflake extra | get snowflake --namespace a.b | get snowflake --namespace ''
bench | bench segment | bench segment a_b | bench snowflake order | bench snowflake -c 0
bench snowflake -d 0s | bench snowflake -d soon | tag create | tag create order --step many
tag create order --step 0 | tag update | tag update a_b --step 5 | tag update order --step 0
tag update order --next-id 5 --raise-by 5 | tag update order --raise-by=-5 | tag update order --next-id many
tag delete | tag delete a..b | serve --tag-poll 10ms | serve --auto-create-tags=a[b
serve --auto-create-tags= | decode | decode -1 | decode 9223372036854775808 | decode 5 --epoch -1
decode 5 --epoch=-1 | decode 5 --epoch soon | decode 5 --epoch 3001-01-01 | decode 5 --layout 39+10+4+8
layout 5 | layout --layout 41+10+13 | layout --layout '' | layout --epoch soon | layout --years 10
layout --years 10 --machines 5 --peak 1 --layout leaf | layout --years 10 --machines=-5 --peak 1
layout --years 10 --machines 5 --peak 1 --epoch soon | layout --years 10 --machines 5 --peak 1 --epoch=-1
layout --years 10 --machines 5 --peak 1 --unit 1500us | serve --replicas 9 | serve --deadline 1ms
serve --deadline soon | serve --epoch -1 | serve --layout lief | serve --site 1
serve --layout article --site 4 | serve --max-batch 0 | serve --log-level loud | serve --log-format xml
serve --listen nonsense | serve --listen 127.0.0.1:65536 | serve --listen :4222 | serve --http nonsense
serve --http 127.0.0.1:http | serve --listen-conf=nats.conf --nats=nats://n1 | serve --data '' | --data ''`

func TestACommandCalledWronglyIsExitCode2(t *testing.T) {
	t.Chdir(t.TempDir())
	for line := range strings.SplitSeq(strings.ReplaceAll(misuses, "\n", " | "), " | ") {
		mistake{line, 2, "--help"}.check(t)
	}
	mistake{"tag update order --desc " + strings.Repeat("a", 257), 2, "--help"}.check(t)
}

func TestEachMistakeIsToldByCauseAndRemedy(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, m := range []mistake{
		{"tga list", 2, "did you mean `natsid tag list`?"},
		{"get order", 2, "did you mean `natsid get segment order`?"},
		{"get segment", 2, `expected "<tag>"`},
		{"get segment order -n 0", 2, "want 1 to"},
		{"get segment a_b", 2, "byte 1 of the tag"},
		{"serve --listen x", 2, "want host:port"},
		{"serve --data /dev/null/x", 1, "choose another with --data DIR"},
		{"serve --layout 40-1-1", 2, "such as 41+10+12"},
		{"serve --epoch tomorrow", 2, "as 2018-09-22"},
		{"serve --epoch 1537545600", 2, "before 1973"},
		{"decode 5 --epoch 2018", 2, "as 2018-09-22"},
		{"leaf --listen 8081", 2, `--listen "8081": want host:port`},
		{"stamp --from A --to B --tag order --http 8080", 2, `--http "8080": want host:port`},
		{"serve --max-step 0", 2, "want 1 to"},
		{"serve --horizon quick", 2, "such as 1.5s or 10m"},
		{"serve --http 8080", 2, "want host:port, or nothing"},
		{"serve --nats=", 2, "--nats is set, but empty: remove it, or name a server"},
		{"serve --nats=postgres://u:p@ss@n1", 2, `--nats "postgres://xxxxx@n1": want`},
		{"serve nats://u:p@ss@n1", 2, "unexpected argument xxxxx@n1"},
		{"serve nats://token@n1", 2, "unexpected argument xxxxx@n1"},
		{"serve u:p@ss@tcp(db)/leaf", 2, "unexpected argument xxxxx@tcp(db)/leaf"},
		{"serve --password wrong", 2, "belongs to --user"},
		{"serve --mysql postgres://u:p@ss@db", 2, "--mysql is malformed: want user:password@tcp(host:port)/database"},
		{"serve --mysql db:3306", 2, "want user:password@tcp(host:port)/database"},
		{"serve --config /nonexistent", 2, "no such file"},
		{"serve --max-stpe 5", 2, `did you mean "--max-step"?`},
		{"serve --namespace a_b", 2, "want A-Z a-z 0-9"},
		{"serve --context nosuch", 2, `there is no context "nosuch"`},
		{"serve --tlscert /nonexistent", 2, "give both"},
		{"serve --numbers 9-5", 2, "0-1023 at most"},
		{"decode abc", 2, `got "abc"`},
		{"layout --years many", 2, `got "many"`},
		{"tag create a_b", 2, "byte 1 of the tag"},
		{"tag update order", 2, "give --step, --desc, --next-id, --raise-by, --max, --max-hole, --max-batch or --rate"},
		{"tag update order --rate 1000000000001", 2, "--rate 1000000000001, want"},
		{"tag update order --force --step 5", 2, "--force is for --next-id and --raise-by"},
		{"throttle order", 2, "want a number of at least 1, or off"},
		{"audit --since yesterday", 2, "such as 90m"},
		{"test-server --nats nats://n1:4222", 2, "leave out --nats"},
		{"test-server --namespace a_b", 2, "want A-Z a-z 0-9"},
		{"test-server --layout 40-1-1", 2, "such as 41+10+12"},
		{"store move --mysql db", 2, "want user:password@tcp(host:port)/database"},
		{"store move", 2, "--mysql is missing"},
		{"permissions worke", 2, `"worker","caller","operator","stage"`},
		{"stamp", 2, "missing flags: --from=STREAM, --to=STREAM"},
		{"stamp --from A --to B", 2, "want either --tag or --snowflake"},
		{"resume --bump many", 2, "--bump"},
		{"health --http 127.0.0.1:1", 1, "name the address of the worker with --http ADDR"},
		{"hepl", 2, "did you mean `natsid help`?"},
		{"--nats nats://n1 hepl", 2, "did you mean `natsid help`?"},
		{"--nats nats://n1 serve tag", 2, "unexpected argument tag"},
		{"help tag creat", 2, "did you mean `natsid tag create`?"},
		{"list", 2, "did you mean `natsid tag list`?"},
		{"create order --strict", 2, "did you mean `natsid tag create order --strict`?"},
		{"tag rm order", 2, "want one of create, update, delete, list, stats"},
		{"get segment order extra", 2, "usage: natsid get segment <tag> [flags]"},
		{"stamp A B", 2, "want one of run, status, repair"},
		{"tag create order --start -5", 2, "no number may be below 0"},
		{"tag create order --start=-5", 2, "want at least 1"},
		{"tag create order --max-hole -1", 2, "no number may be below 0"},
		{"tag create order --daily --monthly", 2, "--daily and --monthly can't be used together"},
		{"tag update order --next-id 0", 2, "want at least 1"},
		{"get segment order -n many", 2, `natsid: -n: expected a valid 64 bit int but got "many"`},
		{"get segment order -n -3", 2, "natsid: -n -3: want"},
		{"bench segment order -d soon", 2, "natsid: -d: "},
		{"bench segment order --duration soon", 2, "natsid: --duration: "},
		{"get segment order --format {idd}", 2, "want {id}, {id:WIDTH}"},
		{"get segment order --format {mask:k1:9}", 2, "there is no key named k1"},
		{"get segment order --format {mask:k1:9} --key k1=/nonexistent", 1, "read the key k1: open /nonexistent"},
		{"get segment order --key k1=k1.key", 2, "--format is missing"},
		{"read SO-42", 2, "--format is missing"},
		{"read --format {id:6} SO-42", 1, "want the number in 6 digits"},
	} {
		m.check(t)
	}
}

func TestEachMistakeAboutAServiceIsToldByCauseAndRemedy(t *testing.T) {
	s := serve(t, "--auto-create-tags=false")
	for _, m := range []mistake{
		{"tag create order", 0, ""},
		{"tag create order", 3, "409: the tag exists; `natsid tag update` changes it"},
		{"tag delete nosuch -y", 3, "no such tag: check its name"},
		{"tag update nosuch --step 5", 3, "no such tag: check its name"},
		{"tag update odrer --rate 1000", 3, "no such tag: check its name"},
		{"tag update odr* --rate 1000", 1, "no tag matches odr*: check the name or pattern"},
		{"tag delete nosuch", 1, "no tag matches nosuch"},
		{"tag delete order", 2, "give --yes"},
		{"throttle 5", 2, "give --yes"},
		{"get segment nosuch", 3, "create it with `natsid tag create`"},
		{"get segment order -n 10000001", 2, "-n 10000001: want 1 to 10000000"},
		{"get snowflake -n 10000001", 2, "-n 10000001: want 1 to 10000000"},
		{"tag create so --zone Asia/Shanghai", 3, "for the dates of a daily, monthly or yearly tag"},
		{"tag create so --daily --zone Shanghai", 3, "a name such as Asia/Shanghai"},
		{"tag create so --min 20 --max 10", 3, "--min 20 is above --max 10"},
		{"tag create so --start 5 --min 20", 3, "--start 5 is below --min 20"},
		{"tag update order --next-id 9223372036854775807", 3, "raise it by less"},
		{"resume --keep x", 2, "this NATS reaches registry"},
		{"serve --layout js53 --http= --data=", 1, "start it with the same; docs/layouts.md says how to change it"},
	} {
		m.check(t, "--nats", s.url)
	}
}

// An empty text is what a template makes of a missing value. Two workers beside one balancer would both be the first.
func TestASettingThatIsSetAndEmptyIsRefused(t *testing.T) {
	for _, s := range app.Settings() {
		if s.Flag == "data" || s.Flag == "http" {
			continue
		}
		mistake{"config --" + s.Flag + "=", 2, "--" + s.Flag + " is set, but empty: remove it, or "}.check(t)
		t.Run(s.Env, func(t *testing.T) {
			t.Setenv(s.Env, "\r")
			mistake{"config", 2, s.Env + " is set, but empty: remove it, or "}.check(t)
		})
	}
	file := configFile(t, `nats: ""`)
	mistake{"config --config " + file, 2, file + ":1: nats is set, but empty: remove it, or name a server"}.check(t)
}

// A misspelt variable is no setting. Kubernetes sets others with the prefix for a Service of natsid's name.
func TestAMisspeltVariableIsRefused(t *testing.T) {
	for _, name := range []string{"NATSID_PORT", "NATSID_SERVICE_HOST", "NATSID_PORT_4222_TCP"} {
		t.Setenv(name, "tcp://10.0.0.1:4222")
	}
	if r := natsid(t, "config"); r.code != 0 {
		t.Errorf("with the variables of Kubernetes: %+v", r)
	}
	for _, name := range []string{"NATS_PORT", "NATS_SERVICE_HOST", "NATS_TIMEOUT", "NATS_COLOR"} { // of others
		t.Setenv(name, "10")
	}
	t.Setenv("NATSID_HORIZN", "10m")
	t.Setenv("NATS_URLS", "")
	for _, words := range []string{"NATSID_HORIZN in the environment is no setting: did you mean NATSID_HORIZON?",
		"NATS_URLS in the environment is no setting: did you mean NATS_URL?"} {
		mistake{"config", 2, words}.check(t)
	}
}

// Probes and alerts depend on an address that was given.
func TestAStartEndsIfTheAddressOfHealthIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mistake{
		"serve --listen 127.0.0.1:0 --data " + filepath.Join(t.TempDir(), "data") + " --http " + l.Addr().String(), 1,
		"choose another address with --http",
	}.check(t)
}
