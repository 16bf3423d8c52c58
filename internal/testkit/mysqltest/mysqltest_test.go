package mysqltest_test

import (
	"bytes"
	"database/sql"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server with a counter in it, at 1.
func start(t *testing.T) *mysqltest.Server {
	t.Helper()
	began := time.Now()
	s := mysqltest.Start(t)
	t.Logf("Start took %v", time.Since(began).Round(time.Millisecond))
	exec1(t, s.DB(), "CREATE TABLE counter (n BIGINT NOT NULL)")
	exec1(t, s.DB(), "INSERT INTO counter VALUES (1)")
	return s
}

func exec1(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func set(t *testing.T, s *mysqltest.Server, n string) {
	t.Helper()
	exec1(t, s.DB(), "UPDATE counter SET n = "+n)
}

func want(t *testing.T, s *mysqltest.Server, want int) {
	t.Helper()
	if got := count(t, s); got != want {
		t.Errorf("the counter stands at %d, want %d", got, want)
	}
}

func count(t *testing.T, s *mysqltest.Server) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRestoreGoesBack(t *testing.T) {
	t.Parallel()
	s := start(t)
	set(t, s, "2")
	began := time.Now()
	then := s.Snapshot()
	t.Logf("Snapshot of a running server took %v", time.Since(began).Round(time.Millisecond))
	want(t, s, 2) // it runs again
	for _, n := range []string{"3", "4"} {
		set(t, s, n)
		s.Kill()
		s.Restore(then)
		s.Run()
		want(t, s, 2)
	}
}

// A test that times out runs no cleanup: the server must end all the same.
func TestAServerDoesNotOutliveTheTests(t *testing.T) {
	const child = "MYSQLTEST_CHILD"
	if os.Getenv(child) != "" {
		s := mysqltest.Start(t)
		os.Stdout.WriteString("addr " + s.Addr() + "\n")
		time.Sleep(time.Hour)
	}
	s := mysqltest.Start(t) // skips where the child would
	s.Pause()               // the same
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir()) // which it cannot clean up
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for buf := make([]byte, 4096); !bytes.HasSuffix(text, []byte("\n")); {
		n, err := out.Read(buf)
		if text = append(text, buf[:n]...); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, addr, ok := strings.Cut(strings.TrimSpace(string(text)), "addr ")
	if !ok {
		t.Fatalf("the child says %q", text)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("%s still listens", addr)
		}
	}
}

func TestWithoutAServerCIFails(t *testing.T) {
	const child = "MYSQLTEST_LACKS"
	if os.Getenv(child) != "" {
		mysqltest.LookNowhere(t)
		mysqltest.Start(t)
		return
	}
	run := func(ci string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1", "CI="+ci, mysqltest.Env+"=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const why = "TestWithoutAServerCIFails needs MariaDB or MySQL: `make deps` installs it"
	if out, err := run(""); err != nil || !strings.Contains(out, "--- SKIP") || !strings.Contains(out, why) {
		t.Errorf("without CI: %v, want a skip that says why\n%s", err, out)
	}
	if out, err := run("true"); err == nil || !strings.Contains(out, "--- FAIL") || !strings.Contains(out, why) {
		t.Errorf("under CI: %v, want a failure that says why\n%s", err, out)
	}
}
