package witness

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var entries = []string{
	"", "{}", "null", "[]", `{"version":2}`,
	`{"version":1,"counter":3,"token":"T","name":"a","time":"2026-01-02T03:04:05Z","life":"L","after":"?"}`,
	`{"version":1,"id":"I","opened":"2026-01-02T03:04:05Z","by":"a","why":"w","must":{"W":"a"},"raised_by":7}`,
	`{"version":1,"registry":"R","witness":"W","revision":"18446744073709551615","era":"E","incident":"I"}`,
	`{"version":1,"inode":4,"witness":"W","counter":1,"token":"T","pending":["a"],"life":"L","floors":"F"}`,
}

// FuzzEntry guards what the bucket of the marks says of lives and incidents: nothing incomplete is believed, and what
// is written is read as it was.
func FuzzEntry(f *testing.F) {
	for _, text := range entries {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeRecord(data); err == nil && r.Time.Year() < 9999 {
			if back, err := decodeRecord(encode(r)); err != nil || !bytes.Equal(encode(back), encode(r)) ||
				r.Token == "" || r.Life == "" {
				t.Fatalf("%q reads as %+v, and again as %+v, %v", data, r, back, err)
			}
		}
		if i, err := decodeIncident(data); err == nil {
			if back, err := decodeIncident(encode(i)); err != nil || back.open() != i.open() || i.ID == "" {
				t.Fatalf("%q reads as %+v, and again as %+v, %v", data, i, back, err)
			}
		}
	})
}

// FuzzTake guards that a message of another registry, or of none, changes nothing that a worker believes.
func FuzzTake(f *testing.F) {
	for _, text := range entries {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &Witness{registry: "mine", earlier: 5, closed: "I0"}
		for _, stranger := range []string{"", "other"} {
			if bytes.Contains(data, []byte("mine")) || w.take(data) == "" {
				continue
			}
			t.Fatalf("%q was taken as of registry mine, not %q", data, stranger)
		}
		if w.highest != 0 || w.incident != "" || w.heard != (time.Time{}) {
			t.Fatalf("%q of another registry changed %+v", data, w)
		}
	})
}

// FuzzJournal guards what a worker remembers on its disk: a file that is damaged is damaged, not absent.
func FuzzJournal(f *testing.F) {
	for _, text := range entries {
		f.Add([]byte(text), []byte(`{"token":"F","floors":{"order":{"End":7}}}`))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data, floors []byte) {
		for name, body := range map[string][]byte{"witness.json": data, "floors.json": floors} {
			if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j, damaged, err := openJournal(dir)
		if damaged == nil && err == nil && (j.Witness == "" || j.Life == "" || j.Token == "" && len(j.Pending) == 0) {
			t.Fatalf("%q is believed: %+v", data, j)
		}
		if known, _ := j.floors(); known != nil && j.Floors == "" {
			t.Fatalf("floors %q are believed without a name", floors)
		}
	})
}
