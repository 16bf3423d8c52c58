package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/segment"
)

// A journal is what a worker remembers of its witness in its data directory: witness.json. It is written whole or not
// at all, and is on disk when a write returns.
type journal struct {
	dir   string // "" keeps nothing
	moved bool   // the file is not the one that was written: it was copied or restored
	journalState
}

type journalState struct {
	Version  int      `json:"version"`
	Inode    uint64   `json:"inode,omitempty"`        // of the file itself: a copy has another, mostly
	Birth    int64    `json:"birth,string,omitempty"` // of the file itself, in ns: a copy has a later one
	Registry string   `json:"registry,omitempty"`
	Witness  string   `json:"witness"`
	Counter  uint64   `json:"counter"`
	Token    string   `json:"token,omitempty"`   // of the last write that is known to have landed
	Pending  []string `json:"pending,omitempty"` // of writes since, of which one may have landed
	Life     string   `json:"life"`
	After    string   `json:"after,omitempty"`
	// Floors names the file floors.json that belongs to this state: the life stopped cleanly, and its floors are
	// complete. "" while the life goes on.
	Floors string `json:"floors,omitempty"`
}

type floorsFile struct {
	Token  string                   `json:"token"`
	Floors map[string]segment.Floor `json:"floors"`
	Known  map[string]record        `json:"known,omitempty"` // all witnesses, as they were last seen
}

// ErrJournal is returned by [Open] for a journal that this version cannot read.
var ErrJournal = errors.New("witness: the journal cannot be used")

// openJournal reads the journal in a directory. A missing one is empty.
//
// A journal of a newer version ends the start: its owner knows what it holds. One that is damaged is damaged, not
// absent: the error says so, and the caller begins a witness whose earlier life is lost.
func openJournal(dir string) (j journal, damaged error, err error) {
	j.dir = dir
	if dir == "" {
		return j, nil, nil
	}
	data, err := os.ReadFile(j.path())
	if errors.Is(err, os.ErrNotExist) {
		return j, nil, nil
	}
	if err != nil {
		return j, nil, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	var st journalState
	if err := json.Unmarshal(data, &st); err != nil || st.Version < 1 {
		return j, fmt.Errorf("witness: %s is damaged or cut off: %w", j.path(), errors.Join(err)), nil
	}
	if st.Version > version {
		return j, nil, fmt.Errorf("%w: %s is of version %d, and this natsid knows %d: start the newer natsid",
			ErrJournal, j.path(), st.Version, version)
	}
	if st.Witness == "" || st.Life == "" || st.Token == "" && len(st.Pending) == 0 {
		return j, fmt.Errorf("witness: %s is damaged: witness, life and token must be set", j.path()), nil
	}
	j.journalState = st
	if now, err := durable.Identify(j.path()); err == nil {
		j.moved = !now.Is(durable.Identity{Inode: st.Inode, Birth: st.Birth})
	}
	return j, nil, nil
}

func (j *journal) path() string { return filepath.Join(j.dir, "witness.json") }

func (j *journal) floorsPath() string { return filepath.Join(j.dir, "floors.json") }

// write puts the state on disk.
func (j *journal) write() error {
	if j.dir == "" {
		return nil
	}
	j.Version = version
	return durable.ReplaceWith(j.path(), func(own durable.Identity) []byte {
		j.Inode, j.Birth = own.Inode, own.Birth
		return append(encode(j.journalState), '\n')
	})
}

// end puts the floors of a life that stopped cleanly on disk, with the witnesses that it has seen, and then the state,
// which names them by j.Floors.
func (j *journal) end(floors map[string]segment.Floor, known map[string]record) error {
	if j.dir == "" {
		return nil
	}
	data := encode(floorsFile{Token: j.Floors, Floors: floors, Known: known})
	if err := durable.Replace(j.floorsPath(), data); err != nil {
		return err
	}
	return j.write()
}

// floors returns the floors of the life, complete if it stopped cleanly, and the witnesses that it saw; nil if the
// floors are not complete.
func (j *journal) floors() (floors map[string]segment.Floor, known map[string]record) {
	if j.dir == "" || j.Floors == "" {
		return nil, nil
	}
	data, err := os.ReadFile(j.floorsPath())
	var f floorsFile
	if err != nil || json.Unmarshal(data, &f) != nil || f.Token != j.Floors {
		return nil, nil
	}
	if f.Floors == nil {
		f.Floors = map[string]segment.Floor{}
	}
	return f.Floors, f.Known
}
