package tests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/ops/grants"
)

// An auditWorld is a nats-server, of which a test looks at the stream of grants.
type auditWorld struct {
	t   *testing.T
	url string
	js  jetstream.JetStream
	ids *client.Client
}

// written returns how many loads of a tag, and how many other writes of its mark, are written down.
func (w *auditWorld) written(tag string) (loads, writes int) {
	w.t.Helper()
	r, err := grants.Open(patient(w.t), w.js, "id_grants", nil)
	if err != nil {
		return 0, 0
	}
	_, err = r.Scan(patient(w.t), r.First, r.Last, func(_ grants.At, b *grants.Batch) bool {
		for _, l := range b.Loads {
			if l.Tag == tag {
				loads++
			}
		}
		for _, c := range b.Writes {
			if c.Tag == tag {
				writes++
			}
		}
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return loads, writes
}

func (w *auditWorld) next(tag string) client.ID {
	w.t.Helper()
	id, err := w.ids.Segment(tag).Next(patient(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *auditWorld) worker() *process {
	return startProcess(w.t, "--nats", w.url, "--data", w.t.TempDir(), "--preload=0s", "--auto-create-tags")
}

// audit returns the exit code of an audit, and what it says.
func (w *auditWorld) audit(args ...string) (code int, text string) {
	return run(w.t, patient(w.t), append([]string{"audit", "--nats=" + w.url}, args...)...)
}

// loadsUnwritten has two tags loaded by a worker that is killed before it writes that down, and returns their names and
// their entries before. created says whether their creation is written down.
func (w *auditWorld) loadsUnwritten(created bool) (back, on string, before []byte) {
	w.t.Helper()
	kv, err := w.js.KeyValue(patient(w.t), "id_segments")
	if err != nil {
		w.t.Fatal(err)
	}
	for n := 0; ; n++ {
		back, on = fmt.Sprintf("back-%t-%d", created, n), fmt.Sprintf("on-%t-%d", created, n)
		p := w.worker()
		for _, tag := range []string{back, on} {
			if code, text := run(w.t, patient(w.t), "tag", "create", tag, "--nats="+w.url); code != 0 {
				w.t.Fatal(text)
			}
		}
		if created {
			waitFor(w.t, "the creations are written down", func() bool {
				_, one := w.written(back)
				_, other := w.written(on)
				return one > 0 && other > 0
			})
		}
		e, err := kv.Get(patient(w.t), back)
		if err != nil {
			w.t.Fatal(err)
		}
		if id := w.next(back); id != 1 || w.next(on) != 1 {
			w.t.Fatalf("the first ID is %d", id)
		}
		p.signal(syscall.SIGKILL)
		loads, writes := w.written(back)
		others, changes := w.written(on)
		if loads+others == 0 && (writes > 0) == created && (changes > 0) == created {
			return back, on, e.Value()
		}
	}
}

// A worker is killed before it writes down its last loads. Where the marks stay, these IDs are held; where one is put
// back, IDs repeat that are in one grant alone, and nothing is proven.
func TestAnAuditProvesNothingWhereMarksWerePutBackOverALoadThatNobodyWroteDown(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true})
	w := &auditWorld{t: t, url: s.ClientURL()}
	nc := connectTo(t, w.url)
	w.ids = client.New(nc)
	var err error
	if w.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(2*patience)); err != nil {
		t.Fatal(err)
	}
	w.worker().signal(syscall.SIGTERM) // makes the buckets
	for _, created := range []bool{true, false} {
		back, on, before := w.loadsUnwritten(created)
		kv, err := w.js.KeyValue(patient(t), "id_segments")
		if err == nil {
			_, err = kv.Put(patient(t), back, before)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := w.worker()
		if id := w.next(back); id != 1 {
			t.Errorf("ID %d, want one that was issued before, or this test tests nothing", id)
		}
		if id := w.next(on); id < 1001 {
			t.Errorf("ID %d of a tag that was not put back", id)
		}
		p.signal(syscall.SIGTERM)
		code, text := w.audit("--tag", back)
		if code != 2 || !strings.Contains(text, "not proven  tag "+back+": IDs from 1 on may be in a load that no") {
			t.Errorf("created %t: exit code %d: %s", created, code, text)
		}
		code, text = w.audit("--tag", on)
		held := strings.Contains(text, "tags        1 proven") && strings.Contains(text, "held  ")
		if created && (code != 0 || !held) {
			t.Errorf("of a mark that stayed: exit code %d: %s", code, text)
		}
		if !created && code != 2 {
			t.Errorf("of a tag whose creation nobody wrote down: exit code %d: %s", code, text)
		}
	}
	if code, text := w.audit(); code != 2 || !strings.Contains(text, " 0 repeated, ") {
		t.Errorf("of all: exit code %d: %s", code, text)
	}
}
