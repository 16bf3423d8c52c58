package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recipe is a document whose commands and SQL a test runs as they stand.
type recipe string

func readRecipe(t *testing.T, path string) recipe {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return recipe(text)
}

// block returns the only block of the document that has a text.
func (r recipe) block(t *testing.T, part string) string {
	t.Helper()
	var found []string
	for i, b := range strings.Split(string(r), "```") {
		if i%2 == 1 && strings.Contains(b, part) {
			_, lines, _ := strings.Cut(b, "\n")
			found = append(found, lines)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks with %q, want one", len(found), part)
	}
	return found[0]
}

// typed runs a program on a text, and returns both its outputs.
func typed(t *testing.T, text string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdin, cmd.Env = strings.NewReader(text), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && (!failed || args[0] != "sh") {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// shell runs commands with natsid on the PATH, and returns what they print and the tags that there are afterwards.
func shell(t *testing.T, commands, url string) (out string, tags map[string]int64) {
	t.Helper()
	dir, this := t.TempDir(), os.Args[0]
	script := "#!/bin/sh\nTEST_AS_NATSID=1 exec " + this + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "natsid"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	out = typed(t, commands, []string{"NATS_URL=" + url, "PATH=" + dir + ":" + os.Getenv("PATH")}, "sh")
	var rows []struct {
		Tag   string
		MaxID int64 `json:"next_id,string"`
	}
	if err := json.Unmarshal([]byte(answered(t, "tag", "list", "--json", "--nats="+url).out), &rows); err != nil {
		t.Fatal(err)
	}
	tags = map[string]int64{}
	for _, r := range rows {
		tags[r.Tag] = r.MaxID
	}
	return out, tags
}
