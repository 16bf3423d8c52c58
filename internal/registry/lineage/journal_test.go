package lineage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/natsid/natsid/segment"
)

func TestAJournalIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	j, m, err := openJournal(&folder{dir: dir})
	if err != nil || !m.isFresh() {
		t.Fatalf("an empty directory remembers %+v, %v", m, err)
	}
	m = memory{Registry: "R", Era: "E", Key: "K", Written: written{Token: "T", Revision: 7},
		Flight: flight{Token: "F", Highest: 9}, Highest: 11,
		Incident: "I", Ended: []string{"H"}, Stop: "why"}
	if !j.write(m) {
		t.Fatal(j.fault)
	}
	j.writeFloors(map[string]segment.Floor{"a/b": {End: 5, Step: 2, Live: true}})
	j, got, err := openJournal(&folder{dir: dir})
	if err != nil || got.copied || string(encode(got)) != string(encode(m)) {
		t.Errorf("%+v, %v, copied is %t; want %+v", got, err, got.copied, m)
	}
	if f := j.floors()["a/b"]; f != (segment.Floor{End: 5, Step: 2, Live: true}) {
		t.Errorf("the floor is %+v", f)
	}
}

// A copy is not the one whose key this process may write.
// A worker that was stopped at its first start, as by a wrong --registry, has loaded nothing, and its journal is sound.
func TestAJournalOfAWorkerThatNeverBeganIsRead(t *testing.T) {
	dir := t.TempDir()
	(&journal{files: &folder{dir: dir}}).write(memory{Highest: 5, Stop: "why"})
	if j, m, err := openJournal(&folder{dir: dir}); err != nil || j.damaged != nil || !m.isFresh() || m.Stop != "why" {
		t.Errorf("%+v, %v, %v", m, j.damaged, err)
	}
}

func TestACopyOfAJournalIsKnownAsOne(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	j, _, err := openJournal(&folder{dir: from})
	if err != nil {
		t.Fatal(err)
	}
	j.write(memory{Registry: "R", Era: "E"})
	if err := os.CopyFS(filepath.Join(to, "copy"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if _, m, err := openJournal(&folder{dir: filepath.Join(to, "copy")}); err != nil || !m.copied || m.Era != "E" {
		t.Errorf("%+v, %v, copied is %t", m, err, m.copied)
	}
}

func TestAJournalThatIsOfNoUseSaysSo(t *testing.T) {
	for text, refused := range map[string]bool{
		"": false, "{": false, "[]": false, `{"version":1}`: false, `{"version":1,"era":"E"}`: false,
		`{"version":2,"registry":"R"}`: true,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, journalName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j, m, err := openJournal(&folder{dir: dir})
		told := j.damaged != nil && !strings.Contains(j.damaged.Error(), "%!")
		if errors.Is(err, ErrJournal) != refused || !m.isFresh() || !refused && !told {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
}
