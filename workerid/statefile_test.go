package workerid_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func TestAStateFileIsBelievedOnlyWholeAndWhereItWasWritten(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string, file []byte) string{
		"copied to another directory": func(t *testing.T, _ string, file []byte) string {
			dir := t.TempDir()
			write(t, dir, file)
			return dir
		},
		"cut short": func(t *testing.T, dir string, file []byte) string {
			write(t, dir, file[:len(file)/2])
			return dir
		},
		"empty":       func(t *testing.T, dir string, _ []byte) string { write(t, dir, nil); return dir },
		"not a state": func(t *testing.T, dir string, _ []byte) string { write(t, dir, []byte("[1]")); return dir },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, dir := new(workeridtest.Memory), t.TempDir()
				a := start(t, m, in(dir))
				w := a.number()
				file, err := os.ReadFile(filepath.Join(dir, "worker.json"))
				if err != nil {
					t.Fatal(err)
				}
				a.crash(dir)
				b := start(t, m, in(spoil(t, dir, file)))
				if b.number() == w {
					t.Errorf("number %d was resumed", w)
				}
				if err := b.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A file is exactly as written, or it is refused: whatever byte is missing or
// wrong.
func TestAStateFileIsReadAsWrittenOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := start(t, new(workeridtest.Memory), in(dir))
		time.Sleep(time.Minute)
		file, err := os.ReadFile(filepath.Join(dir, "worker.json"))
		if err != nil {
			t.Fatal(err)
		}
		l.end()
		whole, err := workerid.DecodeState(file)
		if err != nil || whole != string(file) {
			t.Fatalf("%q, %v, written was\n%s", whole, err, file)
		}
		check := func(what string, data []byte) {
			t.Helper()
			if got, err := workerid.DecodeState(data); err == nil && got != whole {
				t.Errorf("%s: it was read as\n%s, written was\n%s", what, got, whole)
			}
		}
		for n := range file {
			check(fmt.Sprintf("the first %d bytes", n), file[:n])
			for bit := range 8 {
				bad := slices.Clone(file)
				bad[n] ^= 1 << bit
				check(fmt.Sprintf("bit %d of byte %d", bit, n), bad)
			}
		}
		for what, data := range map[string]string{
			"another format": strings.Replace(string(file), "{", `{"v": 2,`, 1),
			"two files":      string(file) + string(file),
			"no checksum":    `{"instance":"a"}`,
		} {
			if got, err := workerid.DecodeState([]byte(data)); err == nil {
				t.Errorf("%s: it was read as %s", what, got)
			}
		}
	})
}

func write(t *testing.T, dir string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "worker.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}
