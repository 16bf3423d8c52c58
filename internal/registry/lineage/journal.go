package lineage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A memory is what a worker remembers of its registry, in a data directory also for its next process. The own key is
// an entry of the bucket that only this worker writes; an incident is a stop of all workers.
type memory struct {
	Registry string `json:"registry,omitempty"`
	Era      string `json:"era,omitempty"` // the era that this worker is in
	// Eras are all eras that this worker knows, with their offsets.
	Eras era.Offsets `json:"eras,omitempty"`
	Key  string      `json:"key,omitempty"` // "" before the first own key
	// Written is the last write of the own key (which only this worker writes) that certainly landed, Flight a later
	// one whose outcome is unknown.
	Written  written  `json:"written,omitzero"`
	Flight   flight   `json:"flight,omitzero"`
	Highest  uint64   `json:"highest,string,omitempty"` // the highest known revision of the bucket
	Incident string   `json:"incident,omitempty"`       // the incident that this worker has joined
	Ended    []string `json:"ended,omitempty"`          // incidents that it joined before, the last mostEnded
	// Stop is why the worker issues nothing, not even snowflakes; "" if it may. The next process is stopped for this
	// reason until it can read the registry.
	Stop     string `json:"stop,omitempty"`
	Volatile bool   `json:"-"` // there is no data directory
	// Taken are the tokens of the key's former owners: see [ownEntry].
	Taken  []string `json:"-"`
	copied bool     // the memory was read from a copy of the data directory, and the process has not proved that yet
}

type written struct {
	Token    string `json:"token"`
	Revision uint64 `json:"revision,string"`
}

type flight struct {
	Token   string `json:"token"`
	Highest uint64 `json:"highest,string"` // revision known when the write was first sent
}

// mostEnded bounds the ended incidents (stops of all workers) that a worker remembers; the registry's identity has all.
const mostEnded = 64

// isFresh reports whether the worker remembers no registry: it has loaded nothing, so nothing can be missing.
func (m *memory) isFresh() bool { return m.Era == "" }

// join sets the incident (a stop of all workers) that this worker is in, "" for none, and adds the former to Ended.
func (m *memory) join(incident string) {
	if old := m.Incident; old != "" && old != incident && !slices.Contains(m.Ended, old) {
		m.Ended = append(m.Ended[max(0, len(m.Ended)+1-mostEnded):], old)
	}
	m.Incident = incident
}

// leaveKey gives up the own key, the entry that only this worker writes. The next write chooses a new key.
func (m *memory) leaveKey() {
	m.Key, m.Written, m.Flight, m.Taken = "", written{}, flight{}, nil
}

// A journal is the files of a worker's memory in its data directory: lineage.json, and floors.json with how far it
// had loaded each tag. Each file is written whole or not at all, and is on disk when a write returns.
type journal struct {
	files   files // nil keeps nothing
	damaged error // why the journal on disk was not read
	fault   error // why lineage.json was not written; it is not written again
}

// files reads and replaces files of a data directory by their names.
type files interface {
	read(name string) (data []byte, own durable.FileID, err error)
	replace(name string, data func(own durable.FileID) []byte) error
}

const (
	journalName = "lineage.json"
	floorsName  = "floors.json"
)

type journalFile struct {
	Version int    `json:"version"`
	Inode   uint64 `json:"inode,omitempty"`        // inode of this file: a copy mostly has another
	Birth   int64  `json:"birth,string,omitempty"` // when this file was made, in ns: a copy is younger
	memory
}

// ErrJournal is returned by [Open] for a journal that this natsid cannot read.
var ErrJournal = errors.New("lineage: the journal cannot be used")

// openJournal reads a journal. A missing journal is empty. A journal of another version is an error, since the natsid
// that wrote it can still read it. For a damaged one it sets j.damaged, and returns an empty memory.
func openJournal(of files) (j *journal, m memory, err error) {
	j = &journal{files: of}
	if of == nil {
		return j, memory{Volatile: true}, nil
	}
	data, now, err := of.read(journalName)
	if errors.Is(err, os.ErrNotExist) {
		return j, m, nil
	}
	if err != nil {
		return j, m, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	var f journalFile
	err = json.Unmarshal(data, &f)
	if err != nil || f.Version < 1 || f.Registry == "" && f.Incident == "" && f.Stop == "" {
		err = cmp.Or(err, errors.New("no registry"))
		j.damaged = fmt.Errorf("lineage: %s is damaged or cut off: %w", journalName, err)
		return j, m, nil
	}
	if f.Version != Version {
		return j, m, fmt.Errorf("%w: %s is of version %d, and this natsid knows %d: start the natsid that wrote it",
			ErrJournal, journalName, f.Version, Version)
	}
	f.memory.copied = !now.Is(durable.FileID{Inode: f.Inode, Birth: f.Birth})
	return j, f.memory, nil
}

// write puts the memory on disk, and reports whether it is there.
func (j *journal) write(m memory) bool {
	j.fault = j.replace(journalName, func(own durable.FileID) []byte {
		return append(encode(journalFile{Version, own.Inode, own.Birth, m}), '\n')
	})
	return j.fault == nil
}

// writeFloors saves how far each tag was loaded. Errors are ignored: a resume lifts tags beyond lost floors, too.
func (j *journal) writeFloors(floors map[string]segment.Floor) {
	_ = j.replace(floorsName, func(durable.FileID) []byte { return encode(floors) })
}

func (j *journal) replace(name string, data func(durable.FileID) []byte) error {
	if j.files == nil {
		return nil
	}
	return j.files.replace(name, data)
}

// floors returns how far each tag was loaded, as it is on disk; nil if that cannot be read.
func (j *journal) floors() (floors map[string]segment.Floor) {
	if j.files == nil {
		return nil
	}
	data, _, err := j.files.read(floorsName)
	if err != nil || json.Unmarshal(data, &floors) != nil {
		return nil
	}
	return floors
}

// A folder implements files on the disk.
type folder struct {
	dir  string
	late chan error // has the outcome of a write that did not end in time; nil if there is none
}

var errDiskHangs = errors.New("the disk does not answer")

// diskTimeout bounds a write to disk, since requests for IDs may wait for it.
const diskTimeout = time.Second

func (f *folder) read(name string) (data []byte, own durable.FileID, err error) {
	path := filepath.Join(f.dir, name)
	if data, err = os.ReadFile(path); err == nil {
		own, err = durable.FileIDOf(path)
	}
	return data, own, err
}

// replace writes a file. After a write that did not end in time it writes no more, since that write could still land,
// and replace a newer file.
func (f *folder) replace(name string, data func(durable.FileID) []byte) error {
	if f.late != nil {
		return errDiskHangs
	}
	done := make(chan error, 1)
	go func() { done <- durable.Replace(filepath.Join(f.dir, name), data) }()
	select {
	case err := <-done:
		return err
	case <-time.After(diskTimeout):
		f.late = done
		return errDiskHangs
	}
}
