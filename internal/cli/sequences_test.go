package cli_test

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// postgres starts a PostgreSQL, which lets everyone in, and returns the folder of its socket.
func postgres(t *testing.T) (dir string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = []string{filepath.Dir(path)}
	}
	if len(found) == 0 || testing.Short() {
		if os.Getenv("CI") != "" {
			t.Fatal("needs PostgreSQL: `make deps` installs it")
		}
		t.Skip("needs PostgreSQL, and no -short: `make deps` installs it")
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := []string{"setpriv", "--pdeathsig=KILL"}
	if os.Getuid() == 0 { // it refuses to run as root
		as = append(as, "--reuid=65534", "--regid=65534", "--clear-groups")
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	typed(t, "", nil, append(as, found[0]+"/initdb", "-D"+dir+"/data", "-Upostgres", "--auth=trust", "--no-locale",
		"--encoding=UTF8", "--no-sync")...)
	server := append(as, found[0]+"/postgres", "-D"+dir+"/data", "-k"+dir, "-clisten_addresses=", "-cfsync=off",
		"-cdynamic_shared_memory_type=mmap")
	cmd := exec.Command(server[0], server[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	wait.For(t, func() error { return exec.Command("psql", "-h"+dir, "-Upostgres", "-cSELECT 1").Run() })
	return dir
}

const sequences = `CREATE SCHEMA sales; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA sales TO reader;
	CREATE TABLE sales.orders (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 50), name text);
	INSERT INTO sales.orders (name) VALUES ('first');
	CREATE SEQUENCE sales.shared INCREMENT 50;
	CREATE TABLE sales.own (id bigint DEFAULT nextval('sales.shared'));
	CREATE TABLE sales.other ("the id" int DEFAULT nextval('sales.shared'));
	INSERT INTO sales.other VALUES (-1), (7000);
	CREATE SEQUENCE sales.fresh; CREATE SEQUENCE sales.down INCREMENT -1; CREATE SEQUENCE sales.round CYCLE;
	CREATE SEQUENCE sales.negative MINVALUE -900 START -500; CREATE SEQUENCE sales.full;
	SELECT setval('sales.full', 9223372036854775807); SELECT setval('sales.fresh', 600, false);
	CREATE SEQUENCE sales."it's
echo injected #";
	CREATE TABLE sales.secret (id serial);
	CREATE SEQUENCE sales.hidden; GRANT SELECT ON ALL TABLES IN SCHEMA sales TO reader;
	GRANT SELECT ON ALL SEQUENCES IN SCHEMA sales TO reader; REVOKE ALL ON sales.hidden, sales.secret FROM reader;
`

// The queries of docs/from-sequences.md are typed into psql and mariadb, and what they print into a shell.
func TestSequencesOfPostgresContinueInTags(t *testing.T) {
	t.Parallel()
	doc, dir, url := readRecipe(t, "../../docs/from-sequences.md"), postgres(t), serve(t).url
	psql := func(user, sql string) string {
		return typed(t, sql, nil, "psql", "-qAtX", "-vON_ERROR_STOP=1", "-h"+dir, "-U"+user, "postgres")
	}
	psql("postgres", sequences)
	out, tags := shell(t, psql("reader", doc.block(t, "pg_sequence")), url)
	want := map[string]int64{"sales.orders_id_seq": 52, "sales.shared": 7100, "sales.fresh": 602, "sales.negative": 1}
	if !maps.Equal(tags, want) {
		t.Errorf("the tags are %v, want %v: %s", tags, want, out)
	}
	refused := strings.Count(out, `--start: expected a valid 64 bit int but got ""`)
	if refused != 4 || strings.Contains(out, "injected\n") {
		t.Errorf("%d sequences refused, want down, round, hidden and secret alone: %s", refused, out)
	}
	psql("postgres", "SELECT setval('sales.orders_id_seq', 51000)")
	again, raise := psql("reader", doc.block(t, "pg_sequence")), doc.block(t, "--next-id 51002")
	_, tags = shell(t, raise, url)
	if tags["sales.orders_id_seq"] != 51002 || !strings.Contains(again, "orders_id_seq' --start '51002'") {
		t.Errorf("after the old writers the tags are %v: %s", tags, again)
	}
}

func TestCountersOfMySQLContinueInTags(t *testing.T) {
	t.Parallel()
	doc, db, url := readRecipe(t, "../../docs/from-sequences.md"), mysqltest.Start(t), serve(t).url
	for _, q := range []string{
		"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 7000",
		"CREATE TABLE `it's` (id INT AUTO_INCREMENT PRIMARY KEY)", "CREATE TABLE plain (id INT PRIMARY KEY)",
		"CREATE TABLE beyond (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 9300000000000000000",
	} {
		if _, err := db.DB().ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := mysql.ParseDSN(db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(cfg.Addr)
	lines := typed(t, doc.block(t, "AUTO_INCREMENT"), []string{"MYSQL_PWD=" + cfg.Passwd},
		"mariadb", "-Nr", "-h"+host, "-P"+port, "-u"+cfg.User, cfg.DBName)
	out, tags := shell(t, lines, url)
	want := map[string]int64{cfg.DBName + ".orders": 7002}
	if !maps.Equal(tags, want) || strings.Count(lines, "create") != 3 {
		t.Errorf("the tags are %v, want %v: %s%s", tags, want, lines, out)
	}
}
