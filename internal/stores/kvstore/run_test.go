package kvstore_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

// So an audit knows who loaded IDs that their process did not record: each process that raises a mark after another one
// records the other's run.
func TestWhoRaisesAMarkRecordsTheRunOfTheProcessBefore(t *testing.T) {
	marks := new(memory)
	var got []string
	as := func(process string) *kvstore.Store {
		return kvstore.New(marks, kvstore.Config{
			Bucket: "marks", Process: func() string { return process },
			Raised: func(_ string, from, to int64, before segment.Run) {
				got = append(got, fmt.Sprintf("%s %d-%d after %s %d-%d", process, from, to,
					before.By, before.From, before.To))
			},
		})
	}
	load := func(s *kvstore.Store) {
		t.Helper()
		if _, err := s.Load(t.Context(), "a", 10, 0); err != nil {
			t.Fatal(err)
		}
	}
	p, q, r := as("P"), as("Q"), as("R")
	create(t, p, segment.Tag{Name: "a", Step: 10})
	load(p)
	load(p)
	text := "P's"
	if _, err := q.Update(t.Context(), "a", segment.Change{Description: &text}); err != nil { // which raises nothing
		t.Fatal(err)
	}
	load(q)
	load(r)
	load(r)
	e, err := marks.Last(t.Context(), "marks", "a")
	if err != nil {
		t.Fatal(err)
	}
	e.Value = regexp.MustCompile(`"mark":\d+`).ReplaceAll(e.Value, []byte(`"mark":777`)) // by hand
	marks.put("a", e)
	load(q)
	load(p)
	resume(t, marks, "marks", 1000) // the marks may have gone back, and P's run with others
	load(q)
	load(r)
	want := []string{"P 0-1 after  0-0", "P 1-11 after  0-0", "P 11-21 after  0-0", "Q 21-31 after P 1-21",
		"R 31-41 after Q 21-31", "R 41-51 after  0-0", "Q 777-787 after  0-0", "P 787-797 after Q 777-787",
		"Q 797-1807 after  0-0", "R 1807-1817 after Q 797-1807"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
