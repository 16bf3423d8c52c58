package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A shell completes the last of some words of a command line, after it has read the script.
type shell struct {
	name  string
	lines func(words []string) string // of a program that prints candidates, one a line
}

var shells = []shell{
	{"bash", func(words []string) string {
		// As readline splits them: = is a word of its own.
		for i := len(words) - 1; i > 0; i-- {
			if flag, value, ok := strings.Cut(words[i], "="); ok {
				words = slices.Replace(slices.Clone(words), i, i+1, flag, "=", value)
			}
		}
		return "COMP_WORDS=('" + strings.Join(words, "' '") + "'); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n" +
			"_natsid; printf '%s\\n' \"${COMPREPLY[@]}\""
	}},
	{"zsh", func(words []string) string { // what zsh itself does with candidates is left out
		return "_describe() { print -l -- ${(P)@[-1]%%:*} }; _files() { print -l *.yaml }\n" +
			"compadd() { shift; print -l -- $@ }; compset() { :; }\n" +
			"words=('" + strings.Join(words, "' '") + "'); CURRENT=$#words\n" +
			"_natsid | grep -e \"^${words[CURRENT]#--*=}\""
	}},
	{"fish", func(words []string) string {
		return "complete -C '" + strings.Join(words, " ") + "' | cut -f1"
	}},
}

func TestShellsCompleteCommandsAndFlags(t *testing.T) {
	t.Parallel()
	for _, sh := range shells {
		t.Run(sh.name, func(t *testing.T) {
			path, err := exec.LookPath(sh.name)
			if err != nil && sh.name != "bash" {
				t.Skipf("%s is not installed", sh.name)
			}
			script := natsid(t, "completion", sh.name)
			script.want(t, 0, "")
			dir := t.TempDir()
			this, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{
				"script": script.out, "natsid.yaml": "",
				"natsid": "#!/bin/sh\nTEST_AS_NATSID=1 exec " + this + " \"$@\"\n",
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			complete := func(words ...string) []string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), path, "-c",
					"compdef() { :; }\n. ./script\n"+sh.lines(append([]string{"natsid"}, words...)))
				if sh.name == "fish" {
					cmd.Args[2] = strings.TrimPrefix(cmd.Args[2], "compdef() { :; }\n")
				}
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "HOME="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
				out, err := cmd.Output()
				if exit, ok := err.(*exec.ExitError); err != nil && (!ok || len(exit.Stderr) > 0) {
					t.Fatalf("%q: %v: %s", words, err, exit.Stderr)
				}
				return strings.Fields(string(out))
			}
			sh.check(t, complete)
		})
	}
}

func (sh shell) check(t *testing.T, complete func(...string) []string) {
	for _, tc := range []struct {
		words, want string // what is completed, separated by spaces
	}{
		{"tag ", "create update delete list"},
		{"tag cr", "create"},
		{"store m", "move"},
		{"--nats nats://n1 tag d", "delete"},
		{"--name tag get s", "segment snowflake"},
		{"--name=tag get s", "segment snowflake"},
		{"--guard ", "on off"},
		{"--on-clock-step=r", "reclaim"},
		{"serve --log-level ", "debug info warn error"},
		{"store move --to ", "kv mysql"},
		{"tag list --st", "--stats"},
		{"tag list --al", "--all"},
		{"get snowflake --al", ""},
		{"--lease", "--lease-ttl"},
		{"get segment --lease", ""},
		{"get segment --js", "--json --js-domain --js-prefix"},
		{"--nats ta", ""},
		{"completion z", "zsh"},
	} {
		got := complete(strings.Split(tc.words, " ")...)
		want := strings.Fields(tc.want)
		slices.Sort(got)
		slices.Sort(want)
		for i, w := range want {
			if sh.name == "fish" && strings.HasSuffix(tc.words, "=r") {
				want[i] = "--on-clock-step=" + w // fish completes the whole word
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("natsid %s: completed with %q, want %q", tc.words, got, want)
		}
	}
	if got := complete("--config", "natsid.y"); !slices.Equal(got, []string{"natsid.yaml"}) {
		t.Errorf("a file is completed with %q", got)
	}
	all := complete("--")
	for _, flag := range []string{"--json", "--deadline", "--auto-create-tags", "--no-auto-create-tags", "--config"} {
		if !slices.Contains(all, flag) {
			t.Errorf("%s is missing in %q", flag, all)
		}
	}
}
