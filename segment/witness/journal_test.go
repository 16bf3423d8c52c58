package witness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/durable"
)

func TestAJournalThatCannotBeReadIsNotGuessed(t *testing.T) {
	for name, test := range map[string]struct {
		file    string
		refused bool
	}{
		"damaged":          {file: "{"},
		"cut off":          {file: `{"version":1,"witness":"W","li`},
		"empty":            {},
		"without a token":  {file: `{"version":1,"witness":"W","life":"L"}`},
		"another document": {file: `{"instance":"a"}`},
		"a newer version":  {file: `{"version":2,"witness":"W","life":"L","token":"T"}`, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "witness.json"), []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
				a, err := w.tryStart("a", dir)
				if test.refused {
					if !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), "start the newer natsid") {
						t.Errorf("%v, want ErrJournal that says what to do", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.load(3, a)
				if len(w.alarms) != 1 || !strings.Contains(w.alarms[0], "natsid tag raise --all --by N") {
					t.Errorf("alarms %q, want one that says what to do", w.alarms)
				}
				if a.witness.MayFound(t.Context()) == nil {
					t.Error("a bucket may be founded, though the worker has forgotten another")
				}
			})
		})
	}
}

func TestAJournalOfAnotherRegistryRefusesUntilItIsConfirmed(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(3, a)
		a.end(true)
		w.identify("another", false)
		a = w.start("a", dir)
		time.Sleep(10 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "natsid store confirm") || w.alarmed() != 1 {
			t.Errorf("%v, alarms %q, want a refusal that says what to do", err, w.alarms)
		}
		w.identify("another", true)
		w.served(10 * time.Second)
	})
}

func TestARestoredDataDirectoryWithTheMarksInsideIsRefused(t *testing.T) {
	play(t, func(w *world) {
		w.embedded = true
		dir, other := t.TempDir(), t.TempDir()
		a := w.start("a", dir)
		w.load(3, a)
		a.end(true)
		a = w.start("a", dir) // a restart is none
		w.load(3, a)
		a.end(true)
		old := w.js.backup()
		copyDir(t, dir, other)
		a = w.start("a", dir)
		w.load(20, a)
		a.end(true)
		w.js.restore(old)
		a = w.start("a", other)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "natsid tag raise --all --by N") {
			t.Errorf("%v, want a refusal that names the command", err)
		}
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

// A file system may give a copy the inode that the original had.
func TestARestoredCopyIsRefusedThoughItHasTheInodeOfTheOriginal(t *testing.T) {
	play(t, func(w *world) {
		w.embedded = true
		dir := t.TempDir()
		path := filepath.Join(dir, "witness.json")
		a := w.start("a", dir)
		w.load(3, a)
		a.end(true)
		old := w.js.backup()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		a = w.start("a", dir)
		w.load(20, a)
		a.end(true)
		w.js.restore(old)
		if err := os.WriteFile(path, data, 0o600); err != nil { // into the file that is there
			t.Fatal(err)
		}
		now, err := durable.Identify(path)
		if err != nil || now.Birth == 0 {
			t.Skip("files have no birth here")
		}
		inode := regexp.MustCompile(`"inode":\d+`).ReplaceAll(data, fmt.Appendf(nil, `"inode":%d`, now.Inode))
		if err := os.WriteFile(path, inode, 0o600); err != nil {
			t.Fatal(err)
		}
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "natsid tag raise --all --by N") {
			t.Errorf("%v, want a refusal that names the command", err)
		}
	})
}

func TestADiskThatFailedIsWrittenAgain(t *testing.T) {
	play(t, func(w *world) {
		dir := filepath.Join(t.TempDir(), "gone")
		a := w.start("a", dir)
		w.load(5, a)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		w.load(15, a)
		a.end(true)
		a = w.start("a", dir)
		a.mustTake(1)
		if n := len(w.js.backup().witnesses()); n != 1 {
			t.Errorf("%d witnesses, want one: the worker was not recognized", n)
		}
	})
}

func TestADiskThatFailsStopsNoLoad(t *testing.T) {
	play(t, func(w *world) {
		dir := filepath.Join(t.TempDir(), "gone")
		a := w.start("a", dir)
		w.load(5, a)
		if len(w.alarms) != 1 || !strings.Contains(w.alarms[0], "cannot be written") {
			t.Errorf("alarms %q, want one", w.alarms)
		}
	})
}
