package subjects_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/subjects"
)

// Two IDs that a float64 cannot hold, as most snowflakes, and the ends.
var someIDs = []subjects.ID{0, 1, 1<<53 + 1, 2124263042718941185, math.MaxInt64}

func TestAnIDPrintsAsADecimalAndComesBackFromIt(t *testing.T) {
	for _, id := range someIDs {
		text := fmt.Sprintf("%d", int64(id))
		if fmt.Sprint(id) != text || fmt.Sprintf("%d", id) != text {
			t.Errorf("%s prints as %v and %d", text, id, id)
		}
		if back, err := subjects.ParseID(text); back != id || err != nil {
			t.Errorf("%s comes back as %d, %v", text, back, err)
		}
	}
}

// A document is a user's type with IDs.
type document struct {
	ID      subjects.ID            `json:"id"`
	Quoted  subjects.ID            `json:"quoted,string"`
	Parent  *subjects.ID           `json:"parent"`
	None    subjects.ID            `json:"none,omitzero"`
	Several []subjects.ID          `json:"several"`
	ByID    map[subjects.ID]string `json:"by_id"`
}

func TestAnIDIsAStringInJSONAndComesBackFromIt(t *testing.T) {
	for _, id := range someIDs {
		in := document{
			ID: id, Quoted: id, Parent: &id, Several: []subjects.ID{id}, ByID: map[subjects.ID]string{id: "x"},
		}
		data, err := json.Marshal(in)
		const form = `{"id":"%[1]d","quoted":"%[1]d","parent":"%[1]d","several":["%[1]d"],"by_id":{"%[1]d":"x"}}`
		want := fmt.Sprintf(form, int64(id))
		if string(data) != want || err != nil {
			t.Fatalf("%s, %v, want %s", data, err, want)
		}
		var out document
		if err := json.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		if out.ID != id || out.Quoted != id || *out.Parent != id || out.Several[0] != id || out.ByID[id] != "x" {
			t.Errorf("%s comes back as %+v", data, out)
		}
	}
}

func TestAnIDComesBackFromANumberInJSON(t *testing.T) {
	for _, id := range someIDs {
		var out struct{ ID subjects.ID }
		if err := json.Unmarshal(fmt.Appendf(nil, `{"id": %d }`, int64(id)), &out); err != nil || out.ID != id {
			t.Errorf("%d comes back as %d, %v", int64(id), out.ID, err)
		}
	}
	out := struct{ ID subjects.ID }{7}
	if err := json.Unmarshal([]byte(`{"id":null}`), &out); err != nil || out.ID != 7 {
		t.Errorf("null is %d, %v, want what was there", out.ID, err)
	}
}

// A text that is almost an ID is refused, and the old ID is cleared.
func TestWhatIsNoIDIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "x", " 7", "7 ", "+7", "-7", "007", "7.0", "7e3", "0x7", "7_0", "9223372036854775808",
		"2124263042718941200000000000000000000000000000000000000000000000000000000000000000", "７",
	} {
		if id, err := subjects.ParseID(text); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q is %d, %v", text, id, err)
		}
		for _, data := range []string{text, `"` + text + `"`} {
			id := subjects.ID(7)
			if err := id.UnmarshalJSON([]byte(data)); err == nil || id != 0 {
				t.Errorf("%s is %d, %v in JSON", data, id, err)
			}
		}
		id := subjects.ID(7)
		if err := id.UnmarshalText([]byte(text)); err == nil || id != 0 {
			t.Errorf("%q is %d, %v as a text", text, id, err)
		}
	}
	for _, data := range []string{`true`, `[7]`, `{"id":7}`, `"`, `"7`, `7"`, `"null"`} {
		id := subjects.ID(7)
		if err := id.UnmarshalJSON([]byte(data)); err == nil || id != 0 {
			t.Errorf("%s is %d, %v in JSON", data, id, err)
		}
	}
	for _, column := range []any{nil, true, 7.0, "x", []byte(nil), int64(-7)} {
		id := subjects.ID(7)
		if err := id.Scan(column); err == nil || id != 0 {
			t.Errorf("%#v is %d, %v in SQL", column, id, err)
		}
	}
}

// Whatever is read as an ID is written as it was read.
func FuzzAnIDHasOneSpelling(f *testing.F) {
	for _, text := range []string{"0", "7", "007", "-7", "+7", "7.0", "9223372036854775807", "9223372036854775808"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := subjects.ParseID(text)
		if err == nil && (id < 0 || id.String() != text) {
			t.Errorf("%q is read as %d", text, id)
		}
		var out subjects.ID
		jsonErr := out.UnmarshalJSON([]byte(`"` + text + `"`))
		if out != id || (jsonErr == nil) != (err == nil) {
			t.Errorf("%q is %d, %v in JSON, want %d, %v", text, out, jsonErr, id, err)
		}
	})
}

func TestAnIDIsABigintInSQLAndComesBackFromIt(t *testing.T) {
	db := mysqltest.Start(t).DB()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE orders (id BIGINT PRIMARY KEY, parent BIGINT NULL, spelled VARCHAR(20) NOT NULL)")
	for _, id := range someIDs {
		exec("INSERT INTO orders VALUES (?, ?, ?)", id, sql.Null[subjects.ID]{}, id)
		exec("UPDATE orders SET parent = ? WHERE id = ?", sql.Null[subjects.ID]{V: id, Valid: true}, id)
		// With arguments a statement is prepared, and numbers arrive in binary.
		for _, q := range []struct {
			query string
			args  []any
		}{
			{"SELECT id, parent, spelled FROM orders WHERE id = ?", []any{id}},
			{fmt.Sprintf("SELECT id, parent, spelled FROM orders WHERE id = %d", id), nil},
		} {
			var got, spelled subjects.ID
			var parent sql.Null[subjects.ID]
			err := db.QueryRowContext(t.Context(), q.query, q.args...).Scan(&got, &parent, &spelled)
			if err != nil || got != id || parent.V != id || !parent.Valid || spelled != id {
				t.Errorf("%s: %d comes back as %d, %v, %d, %v", q.query, id, got, parent, spelled, err)
			}
		}
		exec("UPDATE orders SET parent = NULL WHERE id = ?", id)
		var parent sql.Null[subjects.ID]
		row := db.QueryRowContext(t.Context(), "SELECT parent FROM orders WHERE id = ?", id)
		if err := row.Scan(&parent); err != nil || parent.Valid {
			t.Errorf("NULL comes back as %v, %v", parent, err)
		}
	}
}
