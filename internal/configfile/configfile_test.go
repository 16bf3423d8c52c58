package configfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/configfile"
)

func TestEachValueIsItsTextAndHasItsLine(t *testing.T) {
	entries, faults := configfile.Parse(`# the worker in Oslo
nats: [nats://n1:4222, nats://n2:4222]

grants: on       # YAML's true, but the text counts
epoch: 2018-09-22
max-batch: 0x10
http: ""
mysql: 'leaf:#*&!@tcp(db:3306)/leaf'
`)
	want := "[{nats nats://n1:4222,nats://n2:4222 2} {grants on 4} {epoch 2018-09-22 5} {max-batch 0x10 6} " +
		"{http  7} {mysql leaf:#*&!@tcp(db:3306)/leaf 8}]"
	if got := fmt.Sprint(entries); got != want || faults != nil {
		t.Errorf("%v, faults %v, want\n%s", got, faults, want)
	}
}

func TestAFileThatSetsNothingIsInOrder(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing yet\n", "---\n", "{}\n"} {
		if entries, faults := configfile.Parse(text); entries != nil || faults != nil {
			t.Errorf("%q: %v, faults %v", text, entries, faults)
		}
	}
}

func TestEachFaultIsNamedWithItsLineAndNoValue(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb:\nc: ~\n":             "[{2 b has no value: ",
		"\nsecret":                     "[{2 want lines of the form name: value}]",
		"- secret":                     "[{1 want lines of the form",
		"a: 1\nb: 2\na: secret":        "[{3 a is given on line 1 too: keep one}]",
		"a:\n  b: secret":              "[{1 a: want a value, not names",
		"a: [[secret]]":                "[{1 a: want one text for each item",
		"a: [b, ]\nc: [~]":             "[{2 c: want one text for each item",
		"a: 1\nb: *secret":             "[{2 a value that begins with *, & or ! needs quotes}]",
		"a: &secret x\nb: !secret x\n": "[{1 a: a value that begins with *, & or ! needs quotes} {2 b: a value",
		"b: &x 1\na: *x":               "[{1 b: a value that begins with *, & or ! needs quotes} {2 a: a value",
		"a: 1\nb: secret: x":           "[{2 a name has blanks before it, or a value with a colon",
		"a: 1\n  b: secret":            "[{2 a name has blanks before it",
		"a: 1\nb: \"secret":            "[{2 a quote has no end}]",
		"a: 1\n\tb: secret":            "[{2 a tab cannot stand before a name or a value: write blanks}]",
		"a: 1\n\t\tsecret":             "[{2 a tab cannot stand before",
		"\ta: secret":                  "[{1 a tab cannot stand before",
		"a: %secret":                   "[{1 found character",
		"? [secret]\n: 1":              "[{1 want the name of a setting before the colon}]",
		"a: 1\n---\nb: secret":         "[{2 a second document begins: want one}]",
		"a: \xff":                      "[{1 invalid leading UTF-8 octet}]",
	} {
		_, faults := configfile.Parse(text)
		if got := fmt.Sprint(faults); !strings.HasPrefix(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%q: faults %v, want %s", text, got, want)
		}
	}
}

func TestASecretIsWhatItsFileSaysWithoutWhatEditorsAdd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		"s3 cret": "s3 cret", "\ufeffs3 cret\r\n": "s3 cret", " s\n\n": " s", "s\r": "s", "\ufeff \r\n": "", "": "",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := configfile.Secret(name)
		if isEmpty := want == ""; err == nil && got != want || isEmpty != (err != nil) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nats: [nats://n1, nats://n2]\ndeadline: 2s # short\n")
	f.Add("a: &x 1\nb: *x\n<<: {c: 1}\n")
	f.Add("---\na: 'x\n---\n? [b]\n: ~\n")
	f.Fuzz(func(t *testing.T, text string) {
		entries, faults := configfile.Parse(text)
		for _, e := range entries {
			if e.Line < 1 {
				t.Errorf("%q: %v has no line", text, e)
			}
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Text == "" {
				t.Errorf("%q: fault %v", text, fault)
			}
		}
	})
}
