package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// buildNewer builds a natsid that writes all its formats in version 2.
func buildNewer(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	replaced := make(map[string]string)
	for i, file := range []string{
		"internal/registry/lineage/identity.go", "internal/ops/grants/entry.go", "workerid/registry.go",
	} {
		original, err := filepath.Abs("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		const now, then = "\nconst Version = 1\n", "\nconst Version = 2\n"
		if strings.Count(string(source), now) != 1 {
			t.Fatalf("%s does not say its version", file)
		}
		replaced[original] = filepath.Join(dir, string(rune('a'+i))+".go")
		changed := strings.Replace(string(source), now, then, 1)
		if err := os.WriteFile(replaced[original], []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "natsid")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", path, "../..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return path
}

func TestAnOlderVersionIsRefusedBeforeItWritesAnything(t *testing.T) {
	t.Parallel()
	newer := buildNewer(t)
	url, data := natstest.Start(t), t.TempDir()
	p := launchProgram(t, newer, "--nats", url, "--data", data, "--auto-create-tags")
	p.waitReady(t)
	nc := connectTo(t, url)
	getIDs(t, nc, "id", "order")
	p.signal(syscall.SIGTERM)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	written := func() (all map[string]uint64) {
		all = make(map[string]uint64)
		streams := js.ListStreams(patient(t))
		for s := range streams.Info() {
			all[s.Config.Name] = s.State.LastSeq
		}
		if err := streams.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := written()
	for name, dir := range map[string]string{"with the data of the newer one": data, "with new data": t.TempDir()} {
		err := app.Run(patient(t), configOn(t, url, dir))
		if err == nil || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "knows 1") {
			t.Errorf("%s: %v, want an error that names both versions", name, err)
		}
	}
	for stream, last := range written() {
		if before[stream] != last {
			t.Errorf("the older version wrote into %s: %d, before %d", stream, last, before[stream])
		}
	}
}
