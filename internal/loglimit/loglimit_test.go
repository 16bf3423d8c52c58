package loglimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/loglimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A written is a line that a log has written.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// lines returns the lines since the last call, without their times.
func (w *written) lines() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.text.String()) {
		_, rest, _ := strings.Cut(line, " ")
		lines = append(lines, strings.TrimSpace(rest))
	}
	w.text.Reset()
	return lines
}

func (w *written) want(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := w.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func limited() (*slog.Logger, *written) {
	w := new(written)
	return slog.New(loglimit.New(slog.NewTextHandler(w, nil))), w
}

func TestAnOutageCostsALineOfEachKindInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		for i := range 1000 {
			log.Warn("a load failed", "tag", i)
			time.Sleep(time.Millisecond)
			log.With("service", "x").Error("NATS is away")
			time.Sleep(9 * time.Millisecond)
		}
		w.want(t, "10 s of trouble", `level=WARN msg="a load failed" tag=0`, `level=ERROR msg="NATS is away" service=x`)
		time.Sleep(time.Minute)
		w.want(t, "the minute is over", `level=WARN msg="a load failed" tag=999 held_back=998`,
			`level=ERROR msg="NATS is away" service=x held_back=998`)
	})
}

func TestWhatTheLogSaidLastIsTrueAMinuteLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		log.Warn("down")
		time.Sleep(time.Second)
		log.Info("up")
		time.Sleep(time.Second)
		log.Warn("down")
		w.want(t, "at first", `level=WARN msg=down`, `level=INFO msg=up`)
		time.Sleep(time.Minute)
		w.want(t, "a minute later", `level=WARN msg=down`)
		log.Info("up")
		w.want(t, "more than a minute after the last such line", `level=INFO msg=up`)
	})
}

func TestALineAfterAQuietMinuteIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		for range 3 {
			log.Warn("trouble")
			w.want(t, "at once", `level=WARN msg=trouble`)
			time.Sleep(loglimit.Every + time.Millisecond)
		}
	})
}

func TestALineHasTheTimeOfWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(loglimit.New(slog.NewJSONHandler(&out, nil)))
		log.Warn("trouble")
		out.Reset()
		time.Sleep(time.Second)
		at := time.Now()
		log.Warn("trouble")
		time.Sleep(loglimit.Every)
		synctest.Wait()
		var line struct{ Time time.Time }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || !line.Time.Equal(at) {
			t.Errorf("%s: %v, want the time %v", &out, err, at)
		}
	})
}

func TestAnyNumberOfMessagesTakesLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		for i := range 10_000 {
			log.Error(fmt.Sprint("client ", i, " is slow"))
		}
		synctest.Wait()
		if n := len(w.lines()); n < 1000 || n > 1001 {
			t.Errorf("%d lines of 10,000 messages within a minute, want 1,000 and one", n)
		}
		time.Sleep(loglimit.Every)
		w.want(t, "a minute later", `level=ERROR msg="client 9999 is slow" held_back=8998`)
		time.Sleep(loglimit.Every)
		log.Error("client 1 is slow")
		w.want(t, "the kinds are forgotten", `level=ERROR msg="client 1 is slow"`)
	})
}

func TestAlarmsAndDebugLinesAllPass(t *testing.T) {
	w := new(written)
	log := slog.New(loglimit.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 3 {
		log.Debug("detail")
		log.Error("alarm", "kind", "clock-step")
	}
	if n := len(w.lines()); n != 6 {
		t.Errorf("%d lines, want all 6", n)
	}
}

func TestModesDoNotHoldOneAnotherBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		for _, mode := range []string{"segment", "snowflake", "segment"} {
			log.Info("serving", "mode", mode)
		}
		w.want(t, "at once", `level=INFO msg=serving mode=segment`, `level=INFO msg=serving mode=snowflake`)
		time.Sleep(loglimit.Every)
		w.want(t, "a minute later", `level=INFO msg=serving mode=segment`)
	})
}

func TestNothingIsHeldBackAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		for i := range 3 {
			for _, text := range []string{"b", "a"} {
				log.Warn(text, "i", i)
				time.Sleep(time.Millisecond)
			}
		}
		log.Warn("once")
		w.lines()
		loglimit.Flush(log.With("of", "all"))
		w.want(t, "flushed", `level=WARN msg=b i=2 held_back=1`, `level=WARN msg=a i=2 held_back=1`)
		log.Warn("a")
		w.want(t, "after that", `level=WARN msg=a`)
		time.Sleep(2 * loglimit.Every)
		w.want(t, "no more is held back")
	})
	loglimit.Flush(slog.Default()) // any log will do
}

func TestLinesFromManyGoroutinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := limited()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 100 {
					log.Warn("trouble", "error", errors.New("away"))
				}
			})
		}
		all.Wait()
		time.Sleep(loglimit.Every)
		w.want(t, "a minute later", `level=WARN msg=trouble error=away`,
			`level=WARN msg=trouble error=away held_back=998`)
	})
}

func TestHandlerConforms(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return loglimit.New(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		line := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}
