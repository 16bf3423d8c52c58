package tests

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/natsid/natsid/e2e"
)

// The program is typed as it stands in docs/clients.md, but for the port and the subject.
func TestThePythonOfTheClientsPageGetsIDsAndErrors(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("needs python3")
	}
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no program in Python")
	}
	ids := e2e.Start(t, e2e.Config{})
	port := ids.URL[strings.LastIndex(ids.URL, ":")+1:]
	for subject, want := range map[string]string{
		"id.segment.order": "^1 2 3\n$", "id.snowflake": `^\d{19} \d{19} \d{19}\n$`, "id.segment.a*b": "want A-Z a-z",
		"nobody.segment.order": "503",
	} {
		program := strings.NewReplacer("4222", port, "id.segment.order", subject).Replace(string(found[1]))
		out, err := exec.Command(python, "-c", program).CombinedOutput()
		if !regexp.MustCompile(want).Match(out) || (err == nil) != strings.HasPrefix(want, "^") {
			t.Errorf("%s: %v: %s", subject, err, out)
		}
	}
}
