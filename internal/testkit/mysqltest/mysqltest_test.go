package mysqltest_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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

func TestTheDSNLeadsToTheTestsDatabase(t *testing.T) {
	t.Parallel()
	s := start(t)
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec1(t, db, "UPDATE counter SET n = 2")
	want(t, s, 2)
	if cfg, err := mysql.ParseDSN(s.DSN()); err != nil || cfg.Addr != s.Addr() {
		t.Errorf("DSN %s (%v) does not hold Addr %s", s.DSN(), err, s.Addr())
	}
}

func TestServersKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	set(t, a, "2")
	want(t, b, 1)
}

func TestKillKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := start(t)
	addr := s.Addr()
	set(t, s, "2")
	s.Kill()
	if err := s.DB().PingContext(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	s.Kill() // of a dead one does nothing
	s.Stop() // neither does this
	began := time.Now()
	s.Run()
	t.Logf("Run after Kill took %v", time.Since(began).Round(time.Millisecond))
	want(t, s, 2)
	if s.Addr() != addr {
		t.Errorf("it came back at %s, want %s", s.Addr(), addr)
	}
}

func TestStopAndRun(t *testing.T) {
	t.Parallel()
	s := start(t)
	set(t, s, "2")
	s.Stop()
	s.Run()
	want(t, s, 2)
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

func TestSnapshotLeavesAServerDown(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Stop()
	s.Snapshot()
	if err := s.DB().PingContext(t.Context()); err == nil {
		t.Error("the server answers")
	}
	s.Run() // fails the test if it runs
}

func TestACloneGoesItsOwnWay(t *testing.T) {
	t.Parallel()
	s := start(t)
	set(t, s, "2")
	began := time.Now()
	c := s.Clone()
	t.Logf("Clone took %v", time.Since(began).Round(time.Millisecond))
	want(t, c, 2)
	set(t, s, "3")
	set(t, c, "4")
	want(t, s, 3)
	want(t, c, 4)
	if s.Addr() == c.Addr() {
		t.Error("both have one address")
	}
}

func TestReadOnlyBindsTheTestsUser(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.SetReadOnly(true)
	_, err := s.DB().ExecContext(t.Context(), "UPDATE counter SET n = 2")
	if my, ok := errors.AsType[*mysql.MySQLError](err); !ok || my.Number != 1290 {
		t.Errorf("an UPDATE got %v, want error 1290", err)
	}
	want(t, s, 1)
	s.SetReadOnly(false)
	set(t, s, "2")
}

func TestAPausedServerIsSilent(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.DB().ExecContext(ctx, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: %v, want the deadline to pass", err)
	}
	s.Resume()
	set(t, s, "2")
	want(t, s, 2)
}

func TestAPausedServerCanBeStoppedAndKilled(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Pause()
	s.Stop()
	s.Run()
	s.Pause()
	s.Kill()
	s.Run()
	want(t, s, 1)
	s.Pause() // and cleanup must cope
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

func TestTheServerOfTheEnvironment(t *testing.T) {
	t.Setenv(mysqltest.Env, "")
	s := start(t)
	s.AsRoot("GRANT ALL ON *.* TO natsid@'%'")
	s.DB().SetMaxIdleConns(0) // rights count from the next connection on
	t.Setenv(mysqltest.Env, strings.TrimSuffix(s.DSN(), "natsid"))

	var name string
	t.Run("gives a database", func(t *testing.T) {
		b := start(t)
		set(t, b, "2")
		want(t, s, 1)
		name = b.DSN()[strings.LastIndex(b.DSN(), "/")+1:]
	})
	var left int
	const find = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?"
	if err := s.DB().QueryRowContext(t.Context(), find, name).Scan(&left); err != nil || left != 0 {
		t.Errorf("database %q: %d are left after the test (%v)", name, left, err)
	}
	for method, call := range map[string]func(*mysqltest.Server){
		"Kill":        (*mysqltest.Server).Kill,
		"Stop":        (*mysqltest.Server).Stop,
		"Run":         (*mysqltest.Server).Run,
		"Pause":       (*mysqltest.Server).Pause,
		"Resume":      (*mysqltest.Server).Resume,
		"Snapshot":    func(s *mysqltest.Server) { s.Snapshot() },
		"Restore":     func(s *mysqltest.Server) { s.Restore("") },
		"Clone":       func(s *mysqltest.Server) { s.Clone() },
		"SetReadOnly": func(s *mysqltest.Server) { s.SetReadOnly(true) },
	} {
		t.Run("is left alone by "+method, func(t *testing.T) {
			call(mysqltest.Start(t))
			t.Error("did not skip")
		})
	}
	want(t, s, 1)
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
