//go:build !race

package workerid_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A mutant is the law broken in one way: in each file, old is replaced by new.
type mutant struct {
	name  string
	edits []edit
}

type edit struct{ file, old, new string }

var mutants = []mutant{
	{"a renewal is a put, whatever the revision", []edit{
		{"claim.go", "	token := newToken()\n", "	token := newToken()\n	if r, err := c.read(ctx); err == nil {\n		c.revision = r.Revision\n	}\n"}}},
	{"a token per life, not per write", []edit{
		{"claim.go", "	token := newToken()\n", "	token := c.k.process\n"}}},
	{"the window is adopted with the revision", []edit{
		{"claim.go", "		c.revision = r.Revision\n		err = c.tryWrite(ctx, now, until)\n", "		c.revision, c.until, err = r.Revision, r.Until, nil\n"}}},
	{"the window grows though the write was not acknowledged", []edit{
		{"claim.go", "	if err != nil {\n		return err\n	}\n	c.revision, c.token", "	if err != nil {\n		if c.until = until; c.gen != nil {\n			c.gen.Extend(until)\n		}\n		return err\n	}\n	c.revision, c.token"}}},
	{"until is not clamped on renewal", []edit{
		{"claim.go", "c.write(ctx, now, max(c.until, now+horizon))", "c.write(ctx, now, now+horizon)"}}},
	{"a record of a foreign token is adopted", []edit{
		{"claim.go", "		if !c.owns(r) {\n", "		if false {\n"}}},
	{"the state file keeps its claim at release", []edit{
		{"claim.go", "	if err := c.forget(); err != nil {\n		return err\n	}\n", ""}}},
	{"a release with nothing issued lowers until to nothing", []edit{
		{"claim.go", "	free := c.gen.Close()\n", "	free := c.gen.Close()\n	if free <= c.from+c.k.cfg.Layout.Unit {\n		free = 0\n	}\n"}}},
	{"the last tick is read before the generator is closed", []edit{
		{"keeper.go", "	c.gen.Close()\n	k.use(nil)\n	k.mu.Lock()", "	k.mu.Lock()"},
		{"claim.go", "	free := c.gen.Close()\n", "	free := c.gen.Last()\n	defer c.gen.Close()\n"},
		{"../snowflake/generator.go", "// NextAt issues n IDs", `func (g *Generator) Last() int64 {
	return max(g.from, g.layout.FirstMs((int64(g.state.Load()&^closedBit)+g.layout.PerTick()-1)>>g.layout.Sequence))
}

// NextAt issues n IDs`}}},
	{"an absent record is free", []edit{
		{"choose.go", "err == nil && c.bare {", "false {"}}},
	{"a number lost a moment ago is free", []edit{
		{"keeper.go", "			k.linger(ctx)\n", ""}}},
	{"revisions restart in a registry that is made again", []edit{
		{"sim_test.go", "{ return w.reg.revision + 1_000_000 }", "{ return 0 }"}}},
	{"a number is taken though somebody answers to it", []edit{
		{"choose.go", "	case err == nil:\n		return fmt.Errorf(\"%w: %q answers to %d\", errTaken, who.Instance, w)\n", "	case err == nil:\n		return nil\n"}}},
	{"milliseconds for coarse ticks", []edit{
		{"../snowflake/generator.go", "l.TickFrom(from)", "l.TickAt(from)"}}},
	{"from is not checked", []edit{
		{"../snowflake/generator.go", "g.state.Store(uint64(first) << l.Sequence)", "g.state.Store(uint64(first-first) << l.Sequence)"}}},
	{"a tick that begins at until is issued", []edit{
		{"../snowflake/generator.go", "l.FirstMs(last) >= g.until.Load()", "l.FirstMs(last) > g.until.Load()"}}},
	{"one sequence per business", []edit{
		{"../snowflake/generator.go", "	state atomic.Uint64\n", "	state, other atomic.Uint64\n"},
		{"../snowflake/generator.go", "		state := g.state.Load()\n", "		word := &g.state\n		if n%2 == 0 {\n			word = &g.other\n			word.CompareAndSwap(0, g.state.Load())\n		}\n		state := word.Load()\n"},
		{"../snowflake/generator.go", "g.state.CompareAndSwap(state, ", "word.CompareAndSwap(state, "}}},
	{"the fence is forgotten", []edit{
		{"choose.go", "c, err = k.win(ctx, now, w, r, max(last.Fence, now))", "c, err = k.win(ctx, now, w, r, now)"}}},
	{"the fence is forgotten without the registry", []edit{
		{"choose.go", "from: max(last.Fence, now), until: last.Until", "from: now, until: last.Until"}}},
	{"the fence is written, but not waited for", []edit{
		{"state.go", "		limit = min(st.Claim.Fence, until)\n", ""}}},
	{"without the registry the window is as long as a horizon", []edit{
		{"choose.go", "until: last.Until, revision", "until: now + k.cfg.Horizon.Milliseconds(), revision"}}},
	{"a claim in the state file is trusted whatever the record's token", []edit{
		{"choose.go", "case last != nil && last.Token == r.Token:", "case last != nil:"}}},
	{"a number is used again before until", []edit{
		{"choose.go", "return !live && v.records[w].Until <= now", "return !live"},
		{"choose.go", "w, r, max(r.Until, now))", "w, r, now)"}}},
	{"a lost number's generator stays open", []edit{
		{"keeper.go", "	c.gen.Close()\n	k.use(nil)\n	k.mu.Lock()", "	k.mu.Lock()"}}},
	{"a clock is not compared before a window is written", []edit{
		{"clock.go", "	case agreed:\n", "	case agreed || true:\n"}}},
}

// TestMutants sees the simulation find each way in which the law can be broken.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			binary := m.build(t)
			out, err := exec.CommandContext(t.Context(), binary, "-test.run=^TestSimulation$", "-test.timeout=4m", fmt.Sprint("-sim.n=", 5*schedules)).CombinedOutput()
			found := regexp.MustCompile(`(?m)^\s*sim_test.go:\d+: (seed \d+: .*)$`).FindSubmatch(out)
			if err == nil || found == nil {
				t.Fatalf("not found: %v\n%s", err, out)
			}
			t.Logf("%s", found[1])
		})
	}
}

// build builds this package's tests with the mutant's edits.
func (m mutant) build(t *testing.T) (binary string) {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for i, e := range m.edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			t.Fatal(err)
		}
		source := path
		if earlier, ok := overlay.Replace[path]; ok {
			source = earlier
		}
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(data, []byte(e.old)); n != 1 {
			t.Fatalf("edit %d: %d places in %s are\n%s", i, n, e.file, e.old)
		}
		overlay.Replace[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(overlay.Replace[path], bytes.Replace(data, []byte(e.old), []byte(e.new), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "mutant.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
