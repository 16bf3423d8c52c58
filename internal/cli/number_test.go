//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/kvregistry"
)

// A program runs below natsid number, which is a process of its own: at the program's end it kills all children of its
// process, and would kill those of other tests.
type program struct {
	*testing.T
	cmd      *exec.Cmd
	dir      string
	out, err bytes.Buffer
}

// below starts natsid number with flags on a shell script, in a folder of its own.
func below(t *testing.T, url, script string, flags ...string) *program {
	t.Helper()
	return belowTo(t, nil, url, script, flags...)
}

// belowTo is below, where natsid writes its messages to stderr, unless that is nil.
func belowTo(t *testing.T, stderr *os.File, url, script string, flags ...string) *program {
	t.Helper()
	p := &program{T: t, dir: t.TempDir()}
	args := slices.Concat([]string{"number", "--nats", url, "--max-clock-skew=1ms"}, flags,
		[]string{"--", "sh", "-c", script})
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env, p.cmd.Dir = append(os.Environ(), "TEST_AS_NATSID=1", "NATSID_WORKER_NUMBER=0"), p.dir
	if p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err; stderr != nil {
		p.cmd.Stderr = stderr
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// ends waits for the end, and checks the exit code and that each text is in what natsid says.
func (p *program) ends(code int, says ...string) {
	p.Helper()
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code %d, want %d: %s", got, code, &p.err)
	}
	left := p.err.String()
	for _, text := range says {
		_, after, ok := strings.Cut(left, text)
		if !ok || text == "" && left != "" {
			p.Errorf("natsid says %q, want %q", p.err.String(), says)
		}
		left = after
	}
}

// wrote waits for the file that the script writes.
func (p *program) wrote(name string) (text string) {
	p.Helper()
	wait.Until(p.T, "the program runs", func() bool {
		all, _ := os.ReadFile(filepath.Join(p.dir, name))
		text = strings.TrimSpace(string(all))
		return text != ""
	})
	return text
}

// rests returns for how long nobody else may take each number of programs, by number.
func rests(t *testing.T, url string) map[int]time.Duration {
	t.Helper()
	var rows []struct {
		Number int
		Until  time.Time
	}
	if err := json.Unmarshal([]byte(answered(t, "workers", "--json", "--nats", url).out), &rows); err != nil {
		t.Fatal(err)
	}
	blocked := map[int]time.Duration{}
	for _, r := range rows {
		if r.Number >= 512 {
			blocked[r.Number] = time.Until(r.Until)
		}
	}
	return blocked
}

func TestAProgramGetsANumberOfItsOwnAndGivesItBack(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	var all []*program
	for range 4 {
		all = append(all, below(t, url, `echo $NATSID_WORKER_NUMBER $NODE; echo on > on
			while [ ! -e enough ]; do sleep 0.01; done; exit 7`, "--env=NODE", "--bits=5", "--offset=600"))
	}
	seen := map[string]bool{}
	for _, p := range all {
		p.wrote("on")
	}
	for _, p := range all {
		if err := os.WriteFile(filepath.Join(p.dir, "enough"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.ends(7, "")
		numbers := strings.Fields(p.out.String())
		if n, err := strconv.Atoi(numbers[0]); len(numbers) != 2 || numbers[0] != numbers[1] || seen[numbers[0]] ||
			err != nil || n < 0 || n > 31 {
			t.Errorf("the program printed %q, want a number from 0 to 31 twice, and of no other", p.out.String())
		}
		seen[numbers[0]] = true
	}
	for n, d := range rests(t, url) {
		if d > 2*time.Second {
			t.Errorf("number %d rests for %v after a clean end", n, d)
		}
	}
}

// C, Java and Perl read the first of two variables of one name, so a number from the image would be that of all.
func TestANumberReplacesTheVariablesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	p := below(t, serve(t).url, `tr '\0' '\n' < /proc/$$/environ | grep -c NATSID_WORKER_NUMBER=`)
	if p.ends(0, ""); p.out.String() != "1\n" {
		t.Errorf("the program has the variable %s times", p.out.String())
	}
}

// The clock of the next owner may be behind by the tolerance, and the program's IDs ahead of its clock.
func TestAReleasedNumberIsFreeOneSecondAfterTheProgramEnded(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	p := below(t, url, `date +%s%3N > last`)
	p.ends(0, "")
	last, _ := strconv.ParseInt(p.wrote("last"), 10, 64)
	cfg := kvregistry.Config{History: "id_history", Workers: "id_workers"}
	registry := kvregistry.New(natstest.JetStream(t, url), cfg)
	records, err := registry.Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n, r := range records {
		if after := r.Until - last; n >= 512 && (after < 1000 || after > 60_000) { // a busy machine ends it late
			t.Errorf("number %d is free %d ms after the last sign of life of its program, want a second", n, after)
		}
	}
	if len(records) != 2 {
		t.Errorf("%d records, want those of a worker and of a program", len(records))
	}
}

func TestAProgramThatCannotBeRunTakesNoNumber(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	natsid(t, "number", "--nats", url, "--", "no-such-program").want(t, 127, "no-such-program", "not found")
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte{0}, 0o700); err != nil { // found, and refused by the system
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "number", "--nats", url, broken)
	cmd.Env = append(os.Environ(), "TEST_AS_NATSID=1")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 127 || !strings.Contains(string(out), "exec format error") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for n, d := range rests(t, url) {
		if d > 2*time.Second {
			t.Errorf("number %d rests for %v", n, d)
		}
	}
}

func TestAProgramWhoseNumberCannotBeRenewedIsEnded(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	link, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	p := below(t, link.URL(), `trap 'echo on > term' TERM; echo on > on; while :; do sleep 0.01; done`, "--horizon=6s")
	p.wrote("on")
	link.Refuse(true)
	link.Cut()
	p.ends(4, "cannot be renewed", "SIGTERM", "SIGKILL", "the program was ended")
	p.wrote("term")
	if all := rests(t, url); len(all) != 1 || slices.MinFunc(values(all), compare) < 59*time.Minute {
		t.Errorf("of the numbers of programs these rest: %v, want one for an hour", all)
	}
}

// A container's log may be read by nobody.
func TestAProgramIsEndedThoughNobodyReadsWhatNatsidSays(t *testing.T) {
	t.Parallel()
	link, err := natsproxy.Start(serve(t).url)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for full := time.Now().Add(time.Second); err == nil; { // until the pipe takes no more
		_ = w.SetWriteDeadline(full)
		_, err = w.Write(make([]byte, 1024))
	}
	p := belowTo(t, w, link.URL(), `trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done`, "--horizon=6s")
	pid, _ := strconv.Atoi(p.wrote("pid"))
	link.Refuse(true)
	link.Cut()
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if p.ends(4); syscall.Kill(pid, 0) != syscall.ESRCH {
		t.Error("the program runs after its natsid has ended")
	}
}

func TestANumberWhoseKeeperWasKilledRests(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	p := below(t, url, `echo $$ > pid; exec sleep 600`, "--quarantine=30m", "--horizon=6s")
	pid, _ := strconv.Atoi(p.wrote("pid"))
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	wait.Until(t, "the program ends, too", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	wait.Until(t, "its number rests", func() bool {
		all := rests(t, url)
		return len(all) == 1 && slices.MinFunc(values(all), compare) > 29*time.Minute
	})
}

func TestLayoutSaysWhichNumbersAreForPrograms(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	nats := "--nats=" + url
	natsid(t, "layout", "--holders=off", nats).want(t, 1, "no natsid has run")
	serve(t, nats, "--name=first")
	natsid(t, "layout", "--holders=768-1024", nats).want(t, 2, "768-1024")
	below(t, url, "test $NATSID_WORKER_NUMBER -lt 1022").ends(0)
	got := natsid(t, "layout", "--holders=1022-1023", nats)
	if got.want(t, 0, ""); got.out != "numbers of programs: 1022-1023; who has a number keeps it\n" {
		t.Errorf("%q", got.out)
	}
	below(t, url, "test $NATSID_WORKER_NUMBER -ge 1022").ends(0)
}

func TestMistakesAboutNumbersSayWhatToType(t *testing.T) {
	t.Parallel()
	url := serve(t).url
	for _, c := range []struct {
		args []string
		says []string
	}{
		{nil, []string{"natsid number <program>"}},
		{[]string{"--"}, []string{"java -jar app.jar"}},
		{[]string{"--bits=31", "--", "true"}, []string{"--bits 31: want 1 to 30"}},
		{[]string{"--quarantine=-1s", "--", "true"}, []string{"--quarantine -1s: want 0s to 720h"}},
		{[]string{"--bits=0", "--", "true"}, []string{"--bits 0: want 1 to 30"}},
		{[]string{"--env=A=B", "--", "true"}, []string{"A=B", "want names of variables"}},
		{[]string{"--env=", "--", "true"}, []string{"want names of variables"}},
		{[]string{"--env=A,B", "--", "true"}, []string{"A,B", "want names of variables"}},
		{[]string{"--bits=5", "--offset=3", "--", "true"}, []string{"512-1023", "3-34", "natsid layout --holders"}},
	} {
		natsid(t, append([]string{"number", "--nats", url}, c.args...)...).want(t, 2, c.says...)
	}
	natsid(t, "number", "--nats", url, "--layout=js53", "--", "true").want(t, 1, "41+10+12", "41+6+6")
	natsid(t, "number", "--nats", natstest.Start(t), "true").want(t, 1, "no natsid worker has started")
	// The offset of --bits stays where it was: a program that was started before may have the number 32.
	natsid(t, "layout", "--nats", url, "--holders=768-1023").want(t, 0)
	natsid(t, "number", "--nats", url, "--bits=5", "--", "true").want(t, 2, "768-1023", "512-543", "--offset")
	if help := natsid(t, "number", "--help").out; !strings.Contains(help, "promises less than a worker") {
		t.Errorf("the help does not say the weaker promise: %s", help)
	}
}

func values(of map[int]time.Duration) (all []time.Duration) {
	for _, d := range of {
		all = append(all, d)
	}
	return all
}

func compare(a, b time.Duration) int { return int(a - b) }
