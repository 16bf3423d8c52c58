package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/segment"
)

// A journal is what a worker remembers of its registry in its data directory: lineage.json, and floors.json with how
// far it had loaded each tag. Each is written whole or not at all, and is on disk when a write returns.
type journal struct {
	files   files // nil keeps nothing
	copied  bool  // the file is not the one that was written: it was copied or restored
	damaged error // why the journal on disk was not read
	fault   error // of the last write
}

// files are those of a data directory.
type files interface {
	read(name string) (data []byte, own durable.Identity, err error)
	replace(name string, data func(own durable.Identity) []byte) error
}

const (
	journalName = "lineage.json"
	floorsName  = "floors.json"
)

type journalFile struct {
	Version int    `json:"version"`
	Inode   uint64 `json:"inode,omitempty"`        // of the file itself: a copy has another, mostly
	Birth   int64  `json:"birth,string,omitempty"` // of the file itself, in ns: a copy has a later one
	memory
}

// ErrJournal is returned by [Open] for a journal that this natsid cannot read.
var ErrJournal = errors.New("lineage: the journal cannot be used")

// openJournal reads a journal. A missing one is empty. One of another version ends the start, as its owner knows what
// it holds; one that is damaged is reported, and its memory is lost.
func openJournal(of files) (j *journal, m memory, err error) {
	j = &journal{files: of}
	if of == nil {
		return j, m, nil
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
	if err != nil || f.Version < 1 || f.Registry == "" && f.Incident == "" {
		j.damaged = fmt.Errorf("lineage: %s is damaged or cut off: %w", journalName, errors.Join(err))
		return j, m, nil
	}
	if f.Version != version {
		return j, m, fmt.Errorf("%w: %s is of version %d, and this natsid knows %d: start the natsid that wrote it",
			ErrJournal, journalName, f.Version, version)
	}
	j.copied = !now.Is(durable.Identity{Inode: f.Inode, Birth: f.Birth})
	return j, f.memory, nil
}

// write puts the memory on disk, and reports whether it is there.
func (j *journal) write(m memory) bool {
	return j.replace(journalName, func(own durable.Identity) []byte {
		return append(encode(journalFile{version, own.Inode, own.Birth, m}), '\n')
	})
}

// writeFloors puts floors on disk. What a crash loses of them, the distance of a resume covers.
func (j *journal) writeFloors(floors map[string]segment.Floor) {
	j.replace(floorsName, func(durable.Identity) []byte { return encode(floors) })
}

func (j *journal) replace(name string, data func(durable.Identity) []byte) bool {
	if j.files == nil {
		return true
	}
	j.fault = j.files.replace(name, data)
	return j.fault == nil
}

// floors returns the floors on disk; nil if there are none that can be read.
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

// A folder is the files of a directory.
type folder struct {
	dir  string
	late chan error // has the outcome of a write that did not end in time; nil if there is none
}

var errDiskHangs = errors.New("the disk does not answer")

// diskTimeout bounds a write: requests wait for it.
const diskTimeout = time.Second

func (f *folder) read(name string) (data []byte, own durable.Identity, err error) {
	path := filepath.Join(f.dir, name)
	if data, err = os.ReadFile(path); err == nil {
		own, err = durable.Identify(path)
	}
	return data, own, err
}

// replace writes a file. One that hangs is the last one: it could end after a later one.
func (f *folder) replace(name string, data func(durable.Identity) []byte) error {
	if f.late != nil {
		return errDiskHangs
	}
	done := make(chan error, 1)
	go func() { done <- durable.ReplaceWith(filepath.Join(f.dir, name), data) }()
	select {
	case err := <-done:
		return err
	case <-time.After(diskTimeout):
		f.late = done
		return errDiskHangs
	}
}
