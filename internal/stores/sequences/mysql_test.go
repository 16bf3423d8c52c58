package sequences_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/internal/stores/sequences"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/subjects"
)

// address returns the URL of a test's database.
func address(t *testing.T, db *mysqltest.Server) (url, schema string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("mysql://%s:%s@%s/%s", cfg.User, cfg.Passwd, cfg.Addr, cfg.DBName), cfg.DBName
}

func TestEachCounterBeginsAboveWhatItGaveOut(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	for _, q := range []string{
		"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
		"INSERT INTO orders VALUES (), (), ()",
		"DELETE FROM orders WHERE id = 3",
		// The counter is one for each value of g, and none for the table.
		"CREATE TABLE moved (g INT, id INT AUTO_INCREMENT, PRIMARY KEY (g, id)) ENGINE=MyISAM",
		"INSERT INTO moved VALUES (1, 900), (2, 5)",
		"CREATE TABLE raised (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 5000",
		"CREATE TABLE `no ``tag` (`a ``b` INT AUTO_INCREMENT PRIMARY KEY)",
		"CREATE TABLE beyond (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY) AUTO_INCREMENT = 9300000000000000000",
		"CREATE TABLE plain (id INT PRIMARY KEY)",
	} {
		if _, err := db.DB().ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	url, schema := address(t, db)
	all, err := sequences.MySQL(t.Context(), url, schema)
	if err != nil || len(all) != 5 {
		t.Fatalf("%+v, %v, want 5 counters", all, err)
	}
	sequences.Plan(all, sequences.Options{})
	for i, want := range []struct {
		tag   string
		start subjects.Decimal
		says  string
	}{
		{"beyond", 0, "beyond 63 bits"},
		{"moved", 901, ""},
		{"no `tag", 0, "--start 1"},
		{"orders", 4, ""},
		{"raised", 5000, ""},
	} {
		p := all[i]
		if p.Tag != want.tag || p.Start != want.start || !strings.Contains(p.Why, want.says) ||
			(want.says == "") != (p.Why == "") || p.SQL != "" {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
	if none, err := sequences.MySQL(t.Context(), url, "elsewhere"); err != nil || len(none) != 0 {
		t.Errorf("another schema: %+v, %v", none, err)
	}
}

// A table that cannot be read is not an unused one.
func TestACounterThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	for _, q := range []string{
		"CREATE TABLE lost (id INT AUTO_INCREMENT PRIMARY KEY)", "INSERT INTO lost VALUES (), ()",
		"ALTER TABLE lost DISCARD TABLESPACE",
	} {
		if _, err := db.DB().ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	url, schema := address(t, db)
	all, err := sequences.MySQL(t.Context(), url, schema)
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Why, "cannot be read") {
		t.Errorf("%+v, %v, want a refusal", all, err)
	}
}
