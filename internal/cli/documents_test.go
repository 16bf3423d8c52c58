package cli_test

import (
	"context"
	"go/build"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// notTyped are the blocks of commands that this test does not type, by a text in them, and why.
var notTyped = map[string]string{
	"make deps test":             "the tests themselves",
	"sudo apt install":           "deploy/release and deploy/kubetest type its lines",
	"helm upgrade -i nats ":      "deploy/kubetest types it",
	"natsid --nats nats://n1":    "a fleet on other machines; TestTheFirstWorkersOfREADME types what it does",
	"go run github.com/natsid":   "proof/conformance runs it",
	"setAcl /snowflake":          "ZooKeeper's shell",
	"ls /snowflake":              "ZooKeeper's shell",
	"jq -r":                      "store_test.go types it",
	"nats kv update id_segments": "e2e/tests does it under load",
	"--next-id 51002":            "sequences_test.go types it",
	"nats stream backup":         "TestTheBackupOfTheGuideIsRestored types it",
	"natsid permissions worker":  "e2e/tests types it and starts servers with the files",
	"natsid --listen-conf":       "e2e/tests starts it",
	"natsid.test 'stall 2s'":     "e2e/tests stalls a test server",
	"$ natsid test-server":       "e2e/tests starts it",
	"-args -sim.seed":            "a developer's",
	"-run TestMutants":           "a developer's",
	"go run ./proof":             "a developer's",
	"$ node ids.mjs":             "clients/typescript types it",
	"true client: refused":       "client has its own examples",
	"natsid number -- java":      "client/outside types it",
}

// A block of a document is commands as they are typed, each with what it prints.
type typedBlock struct {
	text     string
	commands []typedCommand
}

type typedCommand struct{ line, prints string }

var (
	fenced    = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	beginning = regexp.MustCompile(`(?m)^(\$ |natsid |nats |go run |go test |sudo |kubectl |ls /|setAcl |mysql> )`)
)

// blocks returns the blocks of commands of a document, and which of them are not to be typed.
func blocks(text string) (all []typedBlock) {
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		if m[1] != "" || !beginning.MatchString(m[2]) {
			continue
		}
		b := typedBlock{text: m[2]}
		for part := range strings.SplitSeq("\n"+m[2], "\n$ ") {
			line, prints, _ := strings.Cut(part, "\n")
			if line != "" {
				b.commands = append(b.commands, typedCommand{line, strings.TrimSpace(prints)})
			}
		}
		all = append(all, b)
	}
	return all
}

// varies matches what differs from run to run: of a line that is a run of IDs, a request that was sent again.
var varies = regexp.MustCompile(`^\d+(-\d+)?\n?$|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\b\d\d:\d\d:\d\d\b|` +
	`\bSO-\d{8}-[\d-]+|\b\d{7,19}\b|worker number \d+|\brtt [\d.]+[mµ]?s|[+-]?[\d.]+m?s\b|\b[0-9a-f]{64}\b`)

var digits = regexp.MustCompile(`\d+`)

// plain returns what a command prints without what differs from run to run. Of several workers the numbers are chance.
func plain(prints string, severalWorkers bool) []string {
	var all []string
	for line := range strings.Lines(prints) {
		line = varies.ReplaceAllString(line, "~")
		if columns := strings.Contains(line, "  "); columns || severalWorkers {
			line = digits.ReplaceAllString(line, "~")
		}
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			all = append(all, line)
		}
	}
	if severalWorkers {
		slices.Sort(all)
	}
	return all
}

// asNatsid runs natsid as a person does in a terminal of its own: a worker stays, once it is ready.
const asNatsid = `#!/bin/bash
case "$1" in
''|-*)
	[ "$1" = --version ] && exec env TEST_AS_NATSID=1 "$NATSID" "$@"
	case "$*" in *--nats*) ;; *) # the first worker, again if it runs
		if pids=$(cat "$HOME/pids"); then
			kill -9 $pids
			for i in $(seq 60); do kill -0 $pids || break; sleep 0.05; done
			rm "$HOME/pids"
		fi 2>/dev/null ;;
	esac
	out=$(mktemp "$HOME/out-XXXX")
	env -u NATS_URL TEST_AS_NATSID=1 "$NATSID" "$@" >"$out" 2>/dev/null & echo $! >>"$HOME/pids"
	for i in $(seq 600); do [ -s "$out" ] && break; sleep 0.1; done
	cat "$out" ;;
get | tag) # again while there is no answer
	for i in $(seq 20); do
		out=$(env TEST_AS_NATSID=1 "$NATSID" "$@" 2>&1) && break
		case $out in *503* | *"no worker"* | *answer* | *deadline*) ;; *) break ;; esac
	done
	printf '%s\n' "$out" ;;
*) exec env TEST_AS_NATSID=1 "$NATSID" "$@" ;;
esac
`

// Each block of the documents is typed as it stands, in the order of its document, and prints what stands there.
func TestDocumentsAreTypedAsTheyStand(t *testing.T) {
	notWithShort(t)
	paths, _ := filepath.Glob("../../docs/*.md")
	unused := make(map[string]bool)
	for part := range notTyped {
		unused[part] = true
	}
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var left []typedBlock
		for _, b := range blocks(string(text)) {
			typed := true
			for part := range notTyped {
				if strings.Contains(b.text, part) {
					typed, unused[part] = false, false
				}
			}
			if typed {
				left = append(left, b)
			}
		}
		if len(left) > 0 {
			t.Run(filepath.Base(path), func(t *testing.T) { typeAll(t, left) })
		}
	}
	for part, is := range unused {
		if is {
			t.Errorf("no block has %q: delete it from the list", part)
		}
	}
}

func notWithShort(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes: not with -short")
	}
}

// typeAll types blocks into one shell, in which natsid uses free ports in place of its usual ones.
func typeAll(t *testing.T, all []typedBlock) {
	t.Parallel()
	path := pathWithNATS(t)
	home := t.TempDir()
	t.Cleanup(func() { stopAll(t, home) })
	if err := os.WriteFile(filepath.Join(home, "natsid"), []byte(asNatsid), 0o755); err != nil {
		t.Fatal(err)
	}
	var there, back []string
	for _, usual := range []string{"127.0.0.1:4222", "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"} {
		free, err := freeport.Get()
		if err != nil {
			t.Fatal(err)
		}
		there, back = append(there, usual, free), append(back, free, usual)
	}
	back = append([]string{"nats --server nats://" + there[1] + " ", "nats "}, back...)
	script := "go() { shift 2; natsid \"$@\"; }\n"
	if !strings.HasSuffix(all[0].commands[0].prints, "try: nats request id.segment.order ''") {
		script += "natsid >/dev/null\n" // a document that is not the first
	}
	const mark = "\n@@@"
	for _, b := range all {
		for _, c := range b.commands {
			script += c.line + "\nprintf '" + strings.ReplaceAll(mark, "\n", `\n`) + "'\n"
		}
	}
	env := []string{
		"HOME=" + home, "NATSID=" + os.Args[0], "PATH=" + home + ":" + path, "NATS_URL=nats://" + there[1],
		"NATSID_LISTEN=" + there[1], "NATSID_HTTP=" + there[3], "NATSID_MAX_CLOCK_SKEW=1ms", "NATSID_LOG_LEVEL=error",
		"NATSID_NAME=vm-KAMWSS",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.NewReplacer(there...).Replace(script))
	cmd.Dir, cmd.Env = home, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, _ := cmd.CombinedOutput() // a refused command is part of some blocks
	got := strings.Split(strings.NewReplacer(back...).Replace(string(out)), mark)
	workers := 0
	for _, b := range all {
		for _, c := range b.commands {
			if workers += strings.Count(c.prints, "natsid is ready"); len(got) == 0 {
				t.Fatalf("%s was not typed", c.line)
			}
			prints, want := plain(got[0], workers > 1), plain(c.prints, workers > 1)
			if !slices.Equal(prints, want) {
				t.Errorf("$ %s\nprints\n%s\nwant\n%s", c.line, strings.Join(prints, "\n"), strings.Join(want, "\n"))
			}
			got = got[1:]
		}
	}
}

// stopAll ends the workers of a shell, and deletes its directory: they may write there until they have ended.
func stopAll(t *testing.T, home string) {
	pids, _ := os.ReadFile(filepath.Join(home, "pids"))
	for pid := range strings.FieldsSeq(string(pids)) {
		_ = exec.Command("kill", "-9", pid).Run()
	}
	wait.Until(t, "the workers have ended", func() bool { return os.RemoveAll(home) == nil })
}

// pathWithNATS returns a PATH on which the nats command is.
func pathWithNATS(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PATH") + ":" + filepath.Join(build.Default.GOPATH, "bin")
	for dir := range strings.SplitSeq(path, ":") {
		if _, err := os.Stat(filepath.Join(dir, "nats")); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("needs the nats command: `make deps` installs it")
	}
	t.Skip("needs the nats command: `make deps` installs it")
	return ""
}

// The commands that the guide has for backup and restore are typed in its order.
func TestTheBackupOfTheGuideIsRestored(t *testing.T) {
	notWithShort(t)
	t.Parallel()
	dir, url, path := t.TempDir(), natstest.Start(t), pathWithNATS(t)
	block, nats := readRecipe(t, "../../docs/operations.md").block(t, "nats stream backup"), "--nats="+url
	if err := os.WriteFile(filepath.Join(dir, "natsid"), []byte(asNatsid), 0o755); err != nil {
		t.Fatal(err)
	}
	types := func(first, more string) {
		t.Helper()
		for line := range strings.Lines(block) {
			if line, _, _ = strings.Cut(line, " #"); strings.HasPrefix(line, first) {
				cmd := exec.CommandContext(t.Context(), "sh", "-ec", line+more)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+dir+":"+path, "NATS_URL="+url, "NATSID="+os.Args[0])
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", line, err, out)
				}
				return
			}
		}
		t.Fatalf("the guide has no %s", first)
	}
	works := func(from subjects.ID) {
		t.Helper()
		w := serve(t, nats, "--data="+filepath.Join(dir, "data"))
		wantFrom(t, from, answered(t, "get", "segment", "order", nats))
		w.stop()
	}
	first := serve(t, nats, "--data="+filepath.Join(dir, "data"))
	answered(t, "tag", "create", "order", nats).want(t, 0)
	first.stop()
	works(1)
	types("nats stream backup", "")
	works(1001) // which the backup does not know
	types("nats stream rm", "")
	types("nats stream restore", "")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		done <- cli.Main(ctx, []string{nats, "--http=", "--data=" + filepath.Join(dir, "data")}, io.Discard, io.Discard)
	}()
	wait.Until(t, "segments are stopped", func() bool {
		got := natsid(t, "get", "segment", "order", nats)
		return strings.Contains(got.err, "503") && strings.Contains(got.err, "natsid status")
	})
	types("natsid resume", " --yes")
	wantFrom(t, 1000002001, answered(t, "get", "segment", "order", nats))
	stop()
	<-done
}
