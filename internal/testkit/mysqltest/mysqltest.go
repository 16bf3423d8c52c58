// Package mysqltest gives a test a real MariaDB or MySQL of its own, which it can
// kill, pause, copy and restore, and a TCP proxy that cuts a connection at a byte.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// What every private server has: a database, and a user with all rights in it and
// none outside. Without SUPER, read_only binds this user.
const (
	user     = "natsid"
	password = "mysqltest-password"
	database = "natsid"
)

// Env is the environment variable with the DSN of a running server to test on, in the driver's form:
// user:password@tcp(host:port)/. Its user must have the right to create databases.
const Env = "NATSID_TEST_MYSQL"

// patience bounds each wait for a server: to start, to stop, to stand still. It is
// long, as a machine that runs all tests at once is slow.
const patience = time.Minute

// A Server is a database server for one test. It is private, a process of its own on a data directory of its own,
// unless the environment names one to use ([Env]): then methods that need a private one skip the test.
//
// Methods fail the test that started the server if something goes wrong: call them
// from that test's goroutine only. Addr, DSN and DB are safe anywhere.
type Server struct {
	tb  testing.TB
	cfg *mysql.Config // of the test's own database
	db  *sql.DB

	// Only a private server has these; kit is nil for one that the environment names.
	kit    *kit
	folder folder
	proc   *process
	tls    []string // options
}

// Start starts a server with an empty database. It ends with the test, with its data,
// even if it is paused by then. Start uses the first of these that exists:
//
//   - the server that [Env] names, with a new database in it;
//   - mariadbd or mysqld, on PATH or in the usual folders.
//
// Without either it skips the test, or fails it if CI is set in the
// environment. With -short it skips the test in any case.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Testing() && testing.Short() {
		tb.Skipf("%s starts a database, which -short skips", tb.Name())
	}
	if dsn := os.Getenv(Env); dsn != "" {
		return borrow(tb, dsn)
	}
	k, err := findKit()
	if err != nil {
		lack(tb, err)
	}
	data, err := k.template()
	if err != nil {
		tb.Fatalf("mysqltest: a first data directory: %v", err)
	}
	s := private(tb, k)
	if err := os.CopyFS(s.folder.data(), data); err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	s.boot()
	s.asRoot(
		"CREATE DATABASE "+database,
		"CREATE USER "+user+"@'%' IDENTIFIED BY '"+password+"'",
		"GRANT ALL ON "+database+".* TO "+user+"@'%'",
	)
	s.greet()
	return s
}

// lack skips the test because there is no database server, or fails it if CI is set in the environment.
func lack(tb testing.TB, err error) {
	tb.Helper()
	report := tb.Skipf
	if os.Getenv("CI") != "" {
		report = tb.Fatalf
	}
	report("%s needs MariaDB or MySQL: `make deps` installs it, or set %s to the DSN of a running one (%v)",
		tb.Name(), Env, err)
}

// private returns a server that has a folder and a port, but neither data nor a process yet.
func private(tb testing.TB, k *kit) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "mdb")
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	addr, err := freeport.Get() // no other process takes it while the server is down
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.DBName = user, password, database
	cfg.Net, cfg.Addr = "tcp", addr
	s := &Server{tb: tb, cfg: cfg, kit: k, folder: folder(dir)}
	tb.Cleanup(func() { s.proc.kill() })
	s.db = open(tb, cfg)
	return s
}

// borrow returns a server that runs already, with a new database in it.
func borrow(tb testing.TB, dsn string) *Server {
	tb.Helper()
	admin, err := mysql.ParseDSN(dsn)
	if err != nil {
		tb.Fatalf("mysqltest: %s: %v", Env, err)
	}
	all, name := open(tb, admin), "natsid_test_"+rand.Text()
	if _, err := all.ExecContext(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("mysqltest: %s, at %s: %v", Env, admin.Addr, err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := all.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			tb.Errorf("mysqltest: %v", err)
		}
	})
	cfg := admin.Clone()
	cfg.DBName = name
	return &Server{tb: tb, cfg: cfg, db: open(tb, cfg)}
}

// DSN returns the DSN of the test's database, in the driver's form: user:password@tcp(host:port)/database. It stays the
// same through every Run and Restore.
func (s *Server) DSN() string { return s.cfg.FormatDSN() }

// Addr returns the server's host:port.
func (s *Server) Addr() string { return s.cfg.Addr }

// DB returns connections to the test's database for the test's own statements. They are closed when the test ends.
func (s *Server) DB() *sql.DB { return s.db }

// Snapshot copies the data directory and returns the copy, for [Server.Restore].
// A server that runs is shut down for it and started again, so all connections are
// lost; one that does not run stays down. The copy is deleted when the test ends.
func (s *Server) Snapshot() (dir string) {
	s.tb.Helper()
	s.needPrivate("Snapshot")
	running := s.proc.running()
	s.Stop()
	dir = filepath.Join(s.tb.TempDir(), "data")
	s.copy(dir, s.folder.data())
	if running {
		s.Run()
	}
	return dir
}

// Restore puts back what [Server.Snapshot] copied: later commits are lost, as after a
// failover to a replica that lagged. The server must be down; Run starts it.
func (s *Server) Restore(dir string) {
	s.tb.Helper()
	s.needPrivate("Restore")
	if s.proc.running() {
		s.tb.Fatal("mysqltest: Restore needs a server that is down: Kill or Stop it first")
	}
	if err := os.RemoveAll(s.folder.data()); err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
	s.copy(s.folder.data(), dir)
}

// SetReadOnly makes the server refuse writes with error 1290, as a replica
// does, or take them again. A server that is started again takes them.
func (s *Server) SetReadOnly(on bool) {
	s.tb.Helper()
	s.needPrivate("SetReadOnly")
	s.asRoot("SET GLOBAL read_only = " + map[bool]string{true: "ON", false: "OFF"}[on])
}

// Limited returns the DSN of a new user who has rights on one table, such as "SELECT, UPDATE", and no others.
func (s *Server) Limited(table, rights string) (dsn string) {
	s.tb.Helper()
	s.needPrivate("Limited")
	cfg := s.cfg.Clone()
	cfg.User = "u" + rand.Text()
	s.asRoot(
		"CREATE USER "+cfg.User+"@'%' IDENTIFIED BY '"+cfg.Passwd+"'",
		"GRANT "+rights+" ON "+database+"."+table+" TO "+cfg.User+"@'%'",
	)
	return cfg.FormatDSN()
}

// Secure starts the server again with TLS, by a certificate that is an authority, too. It returns the DSN of a user who
// must show a certificate of the same authority.
func (s *Server) Secure(cert, key string) (dsn string) {
	s.tb.Helper()
	s.Stop()
	s.tls = []string{"--ssl-ca=" + cert, "--ssl-cert=" + cert, "--ssl-key=" + key}
	s.Run()
	dsn = s.Limited("*", "ALL")
	secured, err := mysql.ParseDSN(dsn)
	if err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
	s.asRoot("ALTER USER " + secured.User + "@'%' REQUIRE X509")
	return dsn
}

// SetPassword changes the password of the user of a DSN, and returns the DSN with it.
func (s *Server) SetPassword(dsn, password string) string {
	s.tb.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
	s.asRoot("ALTER USER " + cfg.User + "@'%' IDENTIFIED BY '" + password + "'")
	cfg.Passwd = password
	return cfg.FormatDSN()
}

// SocketDSN returns the DSN of the test's database through a unix socket.
func (s *Server) SocketDSN() string {
	s.tb.Helper()
	s.needPrivate("SocketDSN")
	cfg := s.cfg.Clone()
	cfg.Net, cfg.Addr = "unix", s.folder.socket()
	return cfg.FormatDSN()
}

// asRoot runs statements with all rights.
func (s *Server) asRoot(statements ...string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), patience)
	defer cancel()
	if err := s.folder.asRoot(ctx, statements...); err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
}

func (s *Server) needPrivate(method string) {
	s.tb.Helper()
	if s.kit == nil {
		s.tb.Skipf("%s needs a server of its own for %s: unset %s", s.tb.Name(), method, Env)
	}
}

func (s *Server) copy(dst, src string) {
	s.tb.Helper()
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
}

// open returns connections that close with the test.
func open(tb testing.TB, cfg *mysql.Config) *sql.DB {
	tb.Helper()
	db, err := openDB(cfg)
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// openDB returns connections that do not log the loss of a server.
func openDB(cfg *mysql.Config) (*sql.DB, error) {
	cfg = cfg.Clone()
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
