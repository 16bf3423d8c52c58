package oneregistry

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/natsid/natsid/internal/durable"
)

// A memory is what a worker remembers in its data directory: that its registry yielded. While its JetStream is away it
// could issue snowflakes by its state file, or after its records were wiped, if it forgot.
type memory struct {
	Segments string `json:"segments,omitempty"`
	Numbers  string `json:"numbers,omitempty"`
	Yields   string `json:"yields"`
	Merged   bool   `json:"merged,omitempty"`
}

func (m memory) of(f Facts) bool {
	return m.Segments != "" && m.Segments == f.Segments || m.Numbers != "" && m.Numbers == f.Numbers
}

func (w *Watch) path() string { return filepath.Join(w.cfg.StateDir, "registry.json") }

// load reads what an earlier life of this worker remembered. A file that cannot be read may say that this worker must
// not serve.
func (w *Watch) load() {
	if w.cfg.StateDir == "" {
		return
	}
	data, err := os.ReadFile(w.path())
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var m memory
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && !IsID(m.Yields) {
		err = errors.New("it names no registry")
	}
	if err != nil {
		w.cfg.Log.Error("what was remembered of a second registry cannot be read; until the registry itself can be "+
			"read, nothing is served: delete the file if this goes on", "file", w.path(), "error", err)
		m = memory{Yields: "unknown"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory = &m
}

// remember reconciles what was read with what is remembered on disk. A registry that was wiped has forgotten that it
// yielded: that is written again. One that says that it serves was released by an operator.
func (w *Watch) remember(ctx context.Context, f Facts) Facts {
	w.mu.Lock()
	m := w.memory
	w.mu.Unlock()
	if m != nil && m.of(f) && f.Verdict.Revision == 0 {
		f.Verdict = Verdict{Yields: m.Yields, Merged: m.Merged, By: w.cfg.Instance()}
		if err := w.cfg.Home.Decide(ctx, f.Verdict); err != nil {
			w.cfg.Log.Warn("the registry has forgotten that it yielded, and that was not written again", "error", err)
		}
		return f
	}
	var now *memory
	if f.Verdict.Yields != "" {
		now = &memory{Segments: f.Segments, Numbers: f.Numbers, Yields: f.Verdict.Yields, Merged: f.Verdict.Merged}
	}
	if m == nil && now == nil || m != nil && now != nil && *m == *now {
		return f
	}
	if err := w.save(now); err != nil {
		w.cfg.Log.Error("that the registry has yielded was not written into the data directory; "+
			"the registry itself remembers it; check the disk", "file", w.path(), "error", err)
	}
	w.mu.Lock()
	w.memory = now
	w.mu.Unlock()
	return f
}

// save replaces the file, durably; nil removes it.
func (w *Watch) save(m *memory) error {
	if w.cfg.StateDir == "" {
		return nil
	}
	if m == nil {
		return durable.Remove(w.path())
	}
	return durable.Replace(w.path(), append(encode(m), '\n'))
}
