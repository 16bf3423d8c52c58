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
	"github.com/natsid/natsid/worker"
)

func TestNewTagsOfFirstUseAreLimitedAndThoseOfOperatorsAreNot(t *testing.T) {
	const limit = 3
	began, log := time.Now(), new(natstest.Buffer)
	r := start(t, natstest.Start(t), 0, newStore(t), func(s *segment.Config, _ *worker.Config) {
		s.Ration, s.AutoStep, s.Log = worker.FirstUses(limit), 10, slog.New(slog.NewTextHandler(log, nil))
	})
	made := 0
	for refused := 0; refused < 5 && made < 1000; {
		got := r.ask(fmt.Sprintf("id.segment.used%d", made+refused), "")
		if got.code == "" {
			made++
			continue
		}
		const most = 20*time.Second + time.Millisecond
		if refused++; got.code != "429" || got.retryAfter <= 0 || got.retryAfter > most {
			t.Errorf("%+v, want 429 and a wait of 20 s at most", got)
		}
	}
	if most := limit * (1 + time.Since(began).Minutes()); made < limit || float64(made) > most+1 {
		t.Errorf("%d tags were made on first use, want %d", made, limit)
	}
	for range 10 {
		r.one("id.segment.order")
		r.one("id.segment.used0")
	}
	for i := range 4 * limit {
		if got := r.ask("id.tag.create", fmt.Sprintf(`{"tag":"created%d"}`, i)); got.code != "" {
			t.Errorf("tag %d of an operator: %+v", i, got)
		}
	}
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
