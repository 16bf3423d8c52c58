//go:build linux

package number_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// natsid and the programs are built once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "number-")
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{{"-C", "../../..", "build", "-o", dir, "."}, {"build", "-o", dir, "./..."}} {
		cmd := exec.Command("go", args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return string(out), err
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := build(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// each is how many IDs a program makes.
const each = 2000

// run runs five processes of a program at once, and returns the IDs of each.
func run(t *testing.T, natsid *e2e.Cluster, program ...string) (all [][]int64) {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatalf("%v: %s", err, dir)
	}
	all = make([][]int64, 5)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			args := append([]string{"number", "--"}, append(program, strconv.Itoa(each))...)
			cmd := exec.Command(filepath.Join(dir, "natsid"), args...)
			cmd.Env = append(os.Environ(), "NATS_URL="+natsid.URL, "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%v: %v: %s", cmd, err, err.(*exec.ExitError).Stderr)
			}
			for text := range strings.FieldsSeq(string(out)) {
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					t.Error(err)
				}
				all[i] = append(all[i], id)
			}
		})
	}
	wg.Wait()
	return all
}

// unique checks that no ID repeats, and that the IDs of each process have a number that machine finds in them, which is
// one of those for programs.
func unique(t *testing.T, all [][]int64, machine func(id int64) int64) {
	t.Helper()
	seen, numbers := map[int64]bool{}, map[int64]bool{}
	for _, ids := range all {
		if len(ids) != each {
			t.Fatalf("%d IDs, want %d", len(ids), each)
		}
		number := machine(ids[0])
		if numbers[number] || number < 512 || number > 1023 {
			t.Errorf("two processes had number %d, or programs have others", number)
		}
		numbers[number] = true
		for _, id := range ids {
			if seen[id] || machine(id) != number {
				t.Fatalf("ID %d is there twice, or not of number %d", id, number)
			}
			seen[id] = true
		}
	}
}

func TestTheUnitIsValid(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	text, err := os.ReadFile("shop@.service")
	if err != nil {
		t.Fatal(err)
	}
	unit, installed := filepath.Join(t.TempDir(), "shop@1.service"), strings.NewReplacer(
		"/usr/bin/natsid", "/bin/true", "/usr/bin/java", "/bin/true")
	if err := os.WriteFile(unit, []byte(installed.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil ||
		strings.Contains(string(out), "shop@") {
		t.Errorf("%v: %s", err, out)
	}
}

// snowflakeOf returns the number in an ID of layout leaf.
func snowflakeOf(id int64) int64 {
	parts, _ := snowflake.Leaf.Decode(subjects.ID(id))
	return int64(parts.Worker)
}

func TestTheRecipesMakeNoIDTwice(t *testing.T) {
	natsid := e2e.Start(t, e2e.Config{Workers: 2})
	t.Run("bwmarrin", func(t *testing.T) { unique(t, run(t, natsid, "bwmarrin"), snowflakeOf) })
	t.Run("sonyflake", func(t *testing.T) {
		unique(t, run(t, natsid, "sonyflake"), func(id int64) int64 { return id & (1<<16 - 1) })
	})
	t.Run("java", func(t *testing.T) {
		if _, err := exec.LookPath("javac"); err != nil && os.Getenv("CI") == "" {
			t.Skip("no JDK: make deps")
		}
		unique(t, run(t, natsid, "java", "Ids.java"), snowflakeOf)
	})
}
