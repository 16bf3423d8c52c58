// Package pgtest gives a test a real PostgreSQL of its own.
package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// Password is that of the superuser postgres.
const Password = "pgtest-password"

// patience bounds each wait for a server.
const patience = time.Minute

// A Server is a PostgreSQL with an empty database, postgres, which has a schema, public. Its methods fail the test that
// started it if something goes wrong.
type Server struct {
	tb   testing.TB
	addr string
}

// Start starts a server, which ends with the test, with its data. Without PostgreSQL it skips the test, or fails it if
// CI is set in the environment. With -short it skips the test in any case.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, func(string) error { return nil })
}

// Standby starts a server that waits for the log of a primary and can only be read.
func Standby(tb testing.TB) *Server {
	tb.Helper()
	return start(tb, func(data string) error {
		return os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644)
	})
}

// start starts a server on data that prepare has seen.
func start(tb testing.TB, prepare func(data string) error) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("%s starts a database, which -short skips", tb.Name())
	}
	bin, err := programs()
	if err != nil {
		report := tb.Skipf
		if os.Getenv("CI") != "" {
			report = tb.Fatalf
		}
		report("%s needs PostgreSQL: `make deps` installs it (%v)", tb.Name(), err)
	}
	addr, err := freeport.Get()
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s := &Server{tb: tb, addr: addr}
	dir := s.folder()
	s.initialize(bin, dir)
	if err := prepare(filepath.Join(dir, "data")); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	s.launch(bin, dir)
	return s
}

// programs returns the folder of initdb and postgres. Debian keeps one for each version off the PATH.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no initdb found")
	}
	if err != nil {
		return "", err
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// folder returns a new folder of the user that runs the server: PostgreSQL refuses to run as root.
func (s *Server) folder() string {
	s.tb.Helper()
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	s.tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = os.WriteFile(filepath.Join(dir, "password"), []byte(Password), 0o644)
	if uid, gid, ok := other(); ok && err == nil {
		err = os.Chown(dir, uid, gid)
	}
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	return dir
}

// other returns the user that runs the server in place of root.
func other() (uid, gid int, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, false
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid, true
}

func (s *Server) initialize(bin, dir string) {
	s.tb.Helper()
	cmd := exec.Command(filepath.Join(bin, "initdb"), "--pgdata="+filepath.Join(dir, "data"), "--username=postgres",
		"--pwfile="+filepath.Join(dir, "password"), "--auth=scram-sha-256", "--no-locale", "--encoding=UTF8",
		"--no-sync")
	restrict(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.tb.Fatalf("pgtest: %s: %v\n%s", cmd, err, out)
	}
}

// launch starts the server and returns when it has answered.
func (s *Server) launch(bin, dir string) {
	s.tb.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"), "-p", port,
		"-c", "listen_addresses="+host, "-c", "unix_socket_directories=", "-c", "fsync=off",
		"-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap")
	cmd.Stdout, cmd.Stderr = log, log
	restrict(cmd, dir)
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	s.tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // at once, without the sessions' goodbye
		<-ended
	})
	s.await(ended, log.Name())
}

// await returns when the server has let the superuser in.
func (s *Server) await(ended <-chan struct{}, log string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres", Password))
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-ended:
		case <-ctx.Done():
		}
		text, _ := os.ReadFile(log)
		s.tb.Fatalf("pgtest: the server does not answer: %v\n%s", err, text)
	}
}

// URL returns the URL of the database for a user.
func (s *Server) URL(name, password string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(name, password), Host: s.addr, Path: "/postgres"}
	return u.String()
}

// Connect returns a session of the superuser, which is closed when the test ends.
func (s *Server) Connect() *pgx.Conn {
	s.tb.Helper()
	conn, err := pgx.Connect(s.tb.Context(), s.URL("postgres", Password))
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	s.tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Exec runs statements as the superuser, in one transaction.
func (s *Server) Exec(statements string) {
	s.tb.Helper()
	conn := s.Connect()
	if _, err := conn.Exec(s.tb.Context(), statements); err != nil {
		s.tb.Fatalf("pgtest: %s: %v", statements, err)
	}
	_ = conn.Close(s.tb.Context())
}
