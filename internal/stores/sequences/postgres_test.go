package sequences_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/stores/sequences"
	"github.com/natsid/natsid/internal/testkit/pgtest"
	"github.com/natsid/natsid/subjects"
)

const shop = `CREATE SCHEMA sales; CREATE SCHEMA "odd "" one";
CREATE TABLE sales.orders (id bigserial PRIMARY KEY);
INSERT INTO sales.orders SELECT FROM generate_series(1, 500);
CREATE TABLE sales.items (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 50));
INSERT INTO sales.items DEFAULT VALUES;
CREATE TABLE sales.byhand (id serial);
INSERT INTO sales.byhand VALUES (700);
CREATE SEQUENCE sales.unused START 1000;
CREATE SEQUENCE sales.tens INCREMENT 10;
SELECT nextval('sales.tens'), nextval('sales.tens');
CREATE SEQUENCE sales.down INCREMENT -1;
CREATE SEQUENCE sales.round MAXVALUE 3 CYCLE;
CREATE SEQUENCE sales.secret;
SELECT nextval('sales.secret');
CREATE SEQUENCE sales.low MINVALUE -100 START -50;
SELECT nextval('sales.low');
CREATE SEQUENCE sales.deep MINVALUE -1000 START -900;
SELECT nextval('sales.deep');
CREATE SEQUENCE sales.ended MAXVALUE 9000;
SELECT setval('sales.ended', 9000);
CREATE SEQUENCE sales.full;
SELECT setval('sales.full', 9223372036854775807);
CREATE SEQUENCE "odd "" one"."no tag";
CREATE ROLE reader LOGIN PASSWORD 'reader-password';
GRANT USAGE ON SCHEMA sales, "odd "" one" TO reader;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA sales, "odd "" one" TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA sales TO reader;
REVOKE ALL ON sales.secret FROM reader;`

// The plan of each kind of sequence, with a margin of 100.
func TestEachSequenceBeginsAboveWhatItGaveOut(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Exec(shop)
	all, err := sequences.Postgres(t.Context(), db.URL("reader", "reader-password"), "")
	if err != nil {
		t.Fatal(err)
	}
	sequences.Plan(all, sequences.Options{Prefix: ".", Margin: 100})
	plans := map[string]sequences.Sequence{}
	for _, p := range all {
		plans[p.Name] = p
	}
	for _, tc := range []struct {
		sequence, tag string
		start         subjects.Decimal
		says          string // a part of the SQL, the notes or the refusal
	}{
		{"sales.orders_id_seq", "sales.orders", 601, `ALTER SEQUENCE "sales"."orders_id_seq" MAXVALUE 600 NO CYCLE;`},
		{"sales.items_id_seq", "sales.items", 151, "MAXVALUE 150 "}, // 50 are in the cache of a session
		{"sales.byhand_id_seq", "sales.byhand", 801, "byhand.id holds 700"},
		{"sales.unused", "sales.unused", 1100, "MAXVALUE 1099 "},
		{"sales.tens", "sales.tens", 112, "its numbers are 10 apart"},
		{"sales.low", "sales.low", 51, "MAXVALUE 50 "},
		{"sales.deep", "sales.deep", 1, "MAXVALUE 0 "},
		{"sales.ended", "sales.ended", 9001, "MAXVALUE 9000 "}, // it gives out no more: no margin
		{"sales.down", "sales.down", 0, "descends"},
		{"sales.round", "sales.round", 0, "cycles"},
		{"sales.full", "sales.full", 0, "at the end of 64 bits"},
		{"sales.secret", "sales.secret", 0, `GRANT SELECT ON SEQUENCE "sales"."secret" TO "reader"`},
		{`odd " one.no tag`, `odd " one.no tag`, 0, "natsid tag create TAG --start 101"},
	} {
		p, ok := plans[tc.sequence]
		said := p.SQL + strings.Join(p.Notes, "; ") + p.Why
		if !ok || p.Tag != tc.tag || p.Start != tc.start || !strings.Contains(said, tc.says) {
			t.Errorf("%s: tag %s at %d, %s; want %s at %d, %s",
				tc.sequence, p.Tag, p.Start, said, tc.tag, tc.start, tc.says)
		}
		if refused := p.State == sequences.Refused; refused != (tc.start == 0) || refused != (p.SQL == "") {
			t.Errorf("%s: %+v", tc.sequence, p)
		}
		delete(plans, tc.sequence)
		if p.SQL != "" {
			db.Exec(p.SQL) // as its owner
		}
	}
	for name := range plans {
		t.Errorf("%s is not expected", name)
	}
}

// The SQL is refused if a sequence has gone beyond it since.
func TestTheSQLFailsWhereASequenceWentBeyondIt(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Exec("CREATE SEQUENCE s; SELECT nextval('s')")
	all, err := sequences.Postgres(t.Context(), db.URL("postgres", pgtest.Password), "public")
	if err != nil {
		t.Fatal(err)
	}
	sequences.Plan(all, sequences.Options{Margin: 10})
	p := all[0]
	db.Exec("SELECT nextval('s') FROM generate_series(1, 10)")
	_, err = db.Connect().Exec(t.Context(), p.SQL)
	if err == nil || p.Start != 12 {
		db.Exec(p.SQL) // 11 is the last
	}
	if _, err := db.Connect().Exec(t.Context(), "SELECT nextval('s')"); p.SQL == "" || err == nil {
		t.Errorf("start %d, %s: the sequence goes beyond it: %v", p.Start, p.SQL, err)
	}
	db.Exec("ALTER SEQUENCE s NO MAXVALUE; SELECT nextval('s')")
	if _, err := db.Connect().Exec(t.Context(), p.SQL); err == nil || !strings.Contains(err.Error(), "MAXVALUE") {
		t.Errorf("the sequence is at 12: %v", err)
	}
}

// A table may have two.
func TestTwoSequencesOfOneTagAreRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Exec("CREATE TABLE two (id serial, version serial); CREATE SEQUENCE alone")
	all, err := sequences.Postgres(t.Context(), db.URL("postgres", pgtest.Password), "")
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	sequences.Plan(all, sequences.Options{Prefix: "."})
	for i, refused := range []bool{false, true, true} {
		if s := all[i]; strings.Contains(s.Why, "tag create TAG --start 1") != refused {
			t.Errorf("%s as %s: %q", s.Name, s.Tag, s.Why)
		}
	}
}

// A sequence that cannot be ended below its tag says so: it has no MAXVALUE that excludes all its numbers.
func TestAnUnusedSequenceNeedsAMarginToBeEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Exec("CREATE SEQUENCE unused; SELECT setval('unused', 1000, false)")
	for _, tc := range []struct {
		margin int64
		sql    string
	}{{0, ""}, {1, `ALTER SEQUENCE "public"."unused" MAXVALUE 1000 NO CYCLE;`}} {
		all, err := sequences.Postgres(t.Context(), db.URL("postgres", pgtest.Password), "")
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		sequences.Plan(all, sequences.Options{Margin: tc.margin})
		said := strings.Contains(strings.Join(all[0].Notes, ""), "give --margin 1 or more")
		if all[0].SQL != tc.sql || said != (tc.sql == "") || all[0].Start != subjects.Decimal(1000+tc.margin) {
			t.Errorf("with a margin of %d: %+v", tc.margin, all[0])
		}
	}
}

func TestAStandbyIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Standby(t)
	_, err := sequences.Postgres(t.Context(), db.URL("postgres", pgtest.Password), "")
	if err == nil || !strings.Contains(err.Error(), "name the primary") {
		t.Errorf("a standby: %v", err)
	}
}

// A policy may hide the rows with the highest numbers.
func TestHiddenRowsAreAnError(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	db.Exec(`CREATE TABLE rows (id serial); INSERT INTO rows VALUES (900); ALTER TABLE rows ENABLE ROW LEVEL SECURITY;
		CREATE ROLE reader LOGIN PASSWORD 'p'; GRANT SELECT ON rows, rows_id_seq TO reader;`)
	_, err := sequences.Postgres(t.Context(), db.URL("reader", "p"), "")
	if err == nil || !strings.Contains(err.Error(), "public.rows_id_seq: ERROR: query would be affected") {
		t.Errorf("hidden rows: %v", err)
	}
	db.Exec("REVOKE SELECT ON rows FROM reader")
	all, err := sequences.Postgres(t.Context(), db.URL("reader", "p"), "")
	if err != nil || len(all) != 1 || !strings.Contains(strings.Join(all[0].Notes, ""), "rows.id was not read") {
		t.Errorf("a column that may not be read: %+v, %v", all, err)
	}
}
