package worker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func rationed(ids, tags int64) edit {
	return func(s *segment.Config, cfg *worker.Config) {
		cfg.Rations = worker.NewRations(ids, tags)
		s.Ration = cfg.Rations.FirstUse
	}
}

// errorOf returns the error in the reply to a request, or nil.
func (r *rig) errorOf(subject, body string) *subjects.Error {
	r.Helper()
	m, err := r.caller.Request(subject, []byte(body), 30*time.Second)
	if err != nil {
		r.Fatal(err)
	}
	return subjects.ParseError(m.Header)
}

func TestAWorkerGivesNoMoreIDsThanItsRate(t *testing.T) {
	const rate, batch = 20, 20 // a busy machine asks faster
	began := time.Now()
	r := start(t, startServer(t), 0, newStore(t), rationed(rate, 0))
	given, segments, refused := 0, 0, 0
	for refused < 20 && given < 10_000 {
		for _, subject := range []string{"id.segment.order", "id.snowflake", "id.snowflake.3"} {
			got := r.ask(subject, fmt.Sprint(batch))
			switch {
			case got.code == "":
				r.ids(got, batch)
				if given += batch; subject == "id.segment.order" {
					segments += batch
				}
			default:
				r.wantRefusal(got, "429")
				if refused++; got.retryAfter <= 0 || got.retryAfter > batch*time.Second/rate+time.Millisecond {
					t.Errorf("%s: retry after %v, want at most what %d IDs cost", subject, got.retryAfter, batch)
				}
			}
		}
	}
	if most := rate*(time.Since(began)+time.Second).Seconds() + batch; float64(given) > most {
		t.Errorf("%d IDs were given, want %.0f at most", given, most)
	}
	r.eventually("give IDs again", func() bool { return r.ask("id.snowflake", "").code == "" })
	// What was refused has drawn no ID.
	var next int64
	r.eventually("give an ID of the tag", func() bool {
		m := r.ask("id.segment.order", "")
		if m.code == "" {
			next = r.ids(m, 1)[0].First
		}
		return m.code == ""
	})
	if next != int64(segments)+1 {
		t.Errorf("the next ID is %d after %d IDs", next, segments)
	}
}

func TestARequestGetsNoMoreThanTenSecondsGive(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t), rationed(20, 0))
	for _, subject := range []string{"id.segment.order", "id.snowflake"} {
		e := r.errorOf(subject, "201")
		if e == nil || e.Code != subjects.BadRequest || e.MaxBatch != 200 {
			t.Errorf("%s: %+v, want 400 with a batch of 200", subject, e)
		}
	}
	r.ids(r.ask("id.segment.order", "200"), 200)
}

// An attack by requests that fail costs the others nothing of the rate.
func TestRequestsThatGetNothingAreNotCountedAsIDs(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t), rationed(1, 0))
	for range 20 {
		for _, subject := range []string{"id.segment.none", "id.segment.other"} {
			if e := r.errorOf(subject, "10"); e == nil || e.Code != subjects.NotFound {
				t.Fatalf("%s: %+v, want 404", subject, e)
			}
		}
	}
	r.one("id.segment.order")
}

func TestNewTagsAreLimitedOnFirstUseAndByRequestEachForItself(t *testing.T) {
	const limit = 3
	began, log := time.Now(), new(natstest.Buffer)
	r := start(t, startServer(t), 0, newStore(t), rationed(0, limit), func(s *segment.Config, _ *worker.Config) {
		s.AutoStep, s.Log = 10, slog.New(slog.NewTextHandler(log, nil))
	})
	make := func(how string, request func(name string) *subjects.Error) {
		t.Helper()
		made := 0
		for refused := 0; refused < 5 && made < 1000; {
			e := request(fmt.Sprintf("%s%d", how, made+refused))
			if e == nil {
				made++
				continue
			}
			const most = 20*time.Second + time.Millisecond
			if refused++; e.Code != subjects.TooMany || e.RetryAfter <= 0 || e.RetryAfter > most {
				t.Errorf("%s: %+v, want 429 and a wait of 20 s at most", how, e)
			}
		}
		if most := limit * (1 + time.Since(began).Minutes()); made < limit || float64(made) > most+1 {
			t.Errorf("%s: %d tags were made, want %d", how, made, limit)
		}
	}
	make("used", func(name string) *subjects.Error { return r.errorOf("id.segment."+name, "") })
	for range 10 {
		r.one("id.segment.order")
		r.one("id.segment.used0")
	}
	create := func(name string) *subjects.Error { return r.errorOf("id.tag.create", fmt.Sprintf(`{"tag":%q}`, name)) }
	for range 5 { // which makes none
		if e := create("order"); e == nil || e.Code != subjects.Conflict {
			t.Errorf("a tag that exists: %+v", e)
		}
	}
	make("created", create)
	if err := r.worker.Trouble(worker.Segment); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "load failed") {
		t.Errorf("the log has lines about requests of anyone:\n%s", log)
	}
	if _, err := r.store.Look(t.Context(), "used9"); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("a tag that was refused: %v", err)
	}
}
