package page_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/page"
	"github.com/natsid/natsid/internal/testkit/frozen"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
)

// get gets a view in virtual time: it waits half a second for the data, and the machine may be busy.
func get(t *testing.T, cfg page.Config, path string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	w := httptest.NewRecorder()
	synctest.Test(t, func(*testing.T) { *w = *visit(page.New(cfg), path) })
	return w, w.Body.String()
}

func visit(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// expect reports texts that a view must have, and those that it must not have.
func expect(t *testing.T, cfg page.Config, path string, texts ...string) {
	t.Helper()
	w, body := get(t, cfg, path)
	if w.Code != http.StatusOK {
		t.Errorf("%s: %d", path, w.Code)
	}
	for _, text := range texts {
		without, absent := strings.CutPrefix(text, "no ")
		plain := tags.ReplaceAllString(body, "")
		if absent == strings.Contains(plain+body, html.EscapeString(without)) {
			t.Errorf("%s: want %s", path, text)
		}
	}
}

var tags = regexp.MustCompile(`</?(b|code|a|time)( [^>]*)?>`)

var all = []string{"/", "/tags", "/tag?name=order", "/charts"}

func TestEachViewShowsTheFleet(t *testing.T) {
	cfg := frozen.Config()
	for path, texts := range map[string][]string{
		"/": {"3 of 4 answered", "answer from delta: run natsid workers", "4m12s", "snowflake: not ready",
			"Wrong now: tag seat: 90% of its numbers are reserved: run natsid tag update --max N seat",
			"All that is wrong: 5",
			"clock-skew", "began ", "over, ", "alpha, beta: ", "7m0s ago", "docs/operations.md#table-went-back",
			"throttled: each tag to 500 IDs/s",
			"Requests answered with an error since these workers started: 9 with ",
			"docs/operations.md#down", "5N7LAQLGLLR4UQACIRT2BJPGKX",
			"no different eras", "ORDERS_STAMPED", "48,210", "standby"},
		"/tags": {"1 to 7 of 7 tags", "/tag?name=order", "deleted", "not servable", "12,345", "250001",
			"up to 1000"},
		"/tags?q=ORD":          {"1 to 2 of 2 found among 7 tags"},
		"/tags?q=%3Cscript%3E": {"1 to 1 of 1 found among 7 tags"},
		"/tags?q=nothing":      {"name contains “nothing”"},
		"/tags?by=speed":       {"1 to 3 of 3 found among 7 tags", "no payment/eu"},
		"/tags?by=none":        {"1 to 7 of 7 tags"},
		"/tags?by=trouble":     {"1 to 1 of 1 found among 7 tags", "/tag?name=seat", "full or nearly so"},
		"/tag?name=order":      {"Tag order", "current", "661", "37,200", "tag update --step 240000 order"},
		"/tag?name=seat":       {"Limits: up to 1000, throttled to 500/s", "901"},
		"/tag?name=none":       {"There is no such tag"},
		"/charts":              {"The last hour", "polyline", "IDs a second in the last hour; segment: now"},
	} {
		expect(t, cfg, path, texts...)
	}
}

func TestNoNameOrTextBecomesMarkup(t *testing.T) {
	cfg := frozen.Config()
	hostile := url.QueryEscape(frozen.Hostile)
	for _, path := range append(all, "/tags?q="+hostile, "/tag?name="+hostile) {
		_, body := get(t, cfg, path)
		body = strings.Replace(body, `<script src="/page.js" defer></script>`, "", 1)
		if strings.Contains(strings.ToLower(body), "<script") {
			t.Errorf("%s: a text is markup: %s", path, body)
		}
		body = strings.ReplaceAll(body, `href="https://github.com/natsid/natsid/blob/main/docs/operations.md#`, "")
		foreign := regexp.MustCompile(`(?i)(src|href|action)="(//|[a-z]+:)[^"]*"`).FindAllString(body, -1)
		if len(foreign) > 1 {
			t.Errorf("%s: links to %q, want the empty icon alone", path, foreign)
		}
		if strings.Contains(body, "style=") || regexp.MustCompile(` on[a-z]+=`).MatchString(body) {
			t.Errorf("%s: what the policy forbids: %s", path, body)
		}
	}
}

func TestTheBrowserIsToldToTrustNobodyElse(t *testing.T) {
	for _, path := range append(all, "/page.js", "/page.css") {
		w, _ := get(t, frozen.Config(), path)
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") ||
			strings.Contains(policy, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}

func TestThePageReadsOnly(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		for _, path := range all {
			w := httptest.NewRecorder()
			page.New(frozen.Config()).ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
}

// changed is the frozen fleet with a change.
type changed struct {
	page.Config
	change func(*fleetview.Snapshot)
}

func (c changed) Look(ctx context.Context, q wire.ViewRequest) (fleetview.Snapshot, error) {
	s, err := c.Fleet.Look(ctx, q)
	c.change(&s)
	return s, err
}

func TestAClockThatIsWrongDoesNotSpoilTheCharts(t *testing.T) {
	cfg := frozen.Config()
	_, want := get(t, cfg, "/charts")
	for _, wrong := range []int64{3 * 3600, -3 * 3600} {
		cfg.Fleet = changed{frozen.Config(), func(s *fleetview.Snapshot) {
			if h := s.Workers[0].Hour; h != nil {
				h.End += wrong
			}
		}}
		if _, got := get(t, cfg, "/charts"); got != want {
			t.Errorf("a clock that is wrong by %d s changes the charts: %s", wrong, got)
		}
	}
}

func TestOfManyThatDoNotAnswerSomeAreNamed(t *testing.T) {
	cfg := frozen.Config()
	cfg.Fleet = changed{frozen.Config(), func(s *fleetview.Snapshot) {
		for i := range 100 {
			w := s.Workers[0]
			w.Answered, w.Statistics.Instance = false, fmt.Sprintf("w%03d", i)
			s.Workers = append(s.Workers, w)
		}
	}}
	expect(t, cfg, "/",
		"answer from delta, w000, w001, w002, w003, w004, w005, w006, w007, w008 and 91 others: run")
}

func TestCommandsNameAnotherNamespace(t *testing.T) {
	cfg := frozen.Config()
	cfg.Namespace = "shop"
	expect(t, cfg, "/tag?name=order", "natsid --namespace shop tag update --rate 100 order",
		"no natsid get", "no natsid tag")
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return nil, nil }
	expect(t, cfg, "/tags", "natsid --namespace shop tag create order")
}

func TestATagThatLooksLikeAFlagIsNoneInACommand(t *testing.T) {
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) {
		return []segment.Tag{{Name: "--all", Step: 10, MaxID: 1}}, nil
	}
	expect(t, cfg, "/tag?name=--all", "natsid tag update --rate 100 -- --all", "natsid get segment -- --all")
}

func TestTagsComeInPages(t *testing.T) {
	var tags []segment.Tag
	for i := range 100_000 {
		tags = append(tags, segment.Tag{Name: fmt.Sprintf("tag%06d", i), Step: 1000, MaxID: 1})
	}
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return tags, nil }
	for path, want := range map[string]struct{ first, last, caption string }{
		"/tags":                     {"tag000000", "tag000049", "1 to 50 of 100,000 tags"},
		"/tags?p=1":                 {"tag000050", "tag000099", "51 to 100 of 100,000 tags"},
		"/tags?p=1999":              {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?p=999999999":         {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?p=-5":                {"tag000000", "tag000049", "1 to 50 of 100,000 tags"},
		"/tags?p=99999999999999999": {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?q=g0999&p=1":         {"tag099950", "tag099999", "51 to 100 of 100 found among 100,000 tags"},
	} {
		_, body := get(t, cfg, path)
		rows := regexp.MustCompile(`/tag\?name=(tag\d+)`).FindAllStringSubmatch(body, -1)
		if len(rows) != 50 || rows[0][1] != want.first || rows[49][1] != want.last ||
			!strings.Contains(body, want.caption) {
			t.Errorf("%s: %d rows, want %v", path, len(rows), want)
		}
		if len(body) > 50_000 {
			t.Errorf("%s: %d bytes", path, len(body))
		}
	}
}

// Operators look when the database is away: what workers have in memory is there.
func TestWithoutTheStoreTagsAreShownFromMemory(t *testing.T) {
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) {
		return nil, fmt.Errorf("JetStream <b>is away</b>: %w", context.DeadlineExceeded)
	}
	const away = "JetStream <b>is away</b>: no answer in time"
	expect(t, cfg, "/", "Wrong now: the tags cannot be read: "+away, "no deadline")
	expect(t, cfg, "/tags", "The tags cannot be read: "+away, "/tag?name=order", "/tag?name=seat",
		"no not servable", "no deadline")
	expect(t, cfg, "/tag?name=order", "The tag cannot be read: "+away, "Ranges in memory", "37,200",
		"no deadline")
	cfg.Fleet = looks(func() (fleetview.Snapshot, error) { return fleetview.Snapshot{}, context.DeadlineExceeded })
	w, body := get(t, cfg, "/")
	if w.Code != 503 || !strings.Contains(body, "This view cannot be shown: no answer in time") {
		t.Errorf("without an answer: %d, %s", w.Code, body)
	}
}

type looks func() (fleetview.Snapshot, error)

func (l looks) Look(context.Context, wire.ViewRequest) (fleetview.Snapshot, error) { return l() }

// A tag is in trouble by what its callers meet: full ones are, idle ones whose load once failed are not.
func TestFullTagsAreInTroubleAndIdleOnesAreNot(t *testing.T) {
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) {
		ten := segment.Rules{Max: 10}
		return []segment.Tag{
			{Name: "busy", Step: 1, MaxID: 1}, {Name: "deleted", Step: 1, MaxID: 11, Rules: ten, Disabled: true},
			{Name: "free", Step: 1, MaxID: 9, Rules: ten}, {Name: "full", Step: 1, MaxID: 11, Rules: ten},
			{Name: "idle", Step: 1, MaxID: 1}, {Name: "nearly", Step: 1, MaxID: 10, Rules: ten},
		}, nil
	}
	cfg.Fleet = changed{cfg, func(s *fleetview.Snapshot) {
		s.Workers[0].Statistics.Busiest = []wire.TagStats{
			{Tag: "idle", Failing: true}, {Tag: "busy", Failing: true, IDsPerSecond: 1},
		}
		s.Workers = s.Workers[:1]
	}}
	_, body := get(t, cfg, "/tags?by=trouble")
	var rows []string
	for _, m := range regexp.MustCompile(`/tag\?name=(\w+)`).FindAllStringSubmatch(body, -1) {
		rows = append(rows, m[1])
	}
	if want := []string{"full", "nearly", "busy"}; !slices.Equal(rows, want) {
		t.Errorf("in trouble are %v, want %v", rows, want)
	}
	expect(t, cfg, "/", "Wrong now: tag full: 100% of its numbers are reserved", "tag busy: loads fail",
		"All that is wrong: 3")
}

func TestWhetherAFleetIsWellIsSaidOnTop(t *testing.T) {
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return nil, nil }
	cfg.Fleet = changed{cfg, func(s *fleetview.Snapshot) { s.Workers = s.Workers[:1] }}
	expect(t, cfg, "/", "Nothing is wrong now.", "no Wrong now")
	cfg = frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return nil, nil }
	cfg.Fleet = changed{cfg, func(s *fleetview.Snapshot) {
		s.Workers = s.Workers[:1]
		s.Workers[0].Modes["segment"] = wire.ModeView{State: "not ready: the registry is stopped; run `natsid resume`"}
	}}
	expect(t, cfg, "/",
		"Wrong now: alpha: not ready: segment: the registry is stopped; run natsid resume.", "no which says why")
}

func TestAViewDoesNotWaitForASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := frozen.Config()
		hold := make(chan struct{})
		tags := cfg.Tags
		cfg.Tags = func(ctx context.Context) ([]segment.Tag, error) { <-hold; return tags(ctx) }
		h := page.New(cfg)
		paths := map[string]struct{ yet, then string }{
			"/tags":           {"The tags cannot be read yet", "1 to 7 of 7 tags"},
			"/tag?name=order": {"The tag cannot be read yet", "Ranges in memory"},
		}
		shows := func(path, text string) {
			t.Helper()
			if w := visit(h, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: %d, want %s", path, w.Code, text)
			}
		}
		for path, want := range paths {
			shows(path, want.yet)
		}
		close(hold)
		synctest.Wait()
		for path, want := range paths {
			shows(path, want.then)
		}
	})
}

func TestWhatManyLookAtIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := frozen.Config()
		now := cfg.Now()
		cfg.Now = func() time.Time { return now }
		reads, fails := 0, false
		cfg.Tags = func(context.Context) ([]segment.Tag, error) {
			reads++
			if fails {
				return nil, errors.New("away")
			}
			return []segment.Tag{{Name: "order", Step: 1000, MaxID: 1}}, nil
		}
		h := page.New(cfg)
		shows := func(text string) bool { return strings.Contains(visit(h, "/tags").Body.String(), text) }
		for range 20 {
			if !shows("/tag?name=order") {
				t.Fatal("no tag is shown")
			}
		}
		if reads != 1 {
			t.Errorf("%d reads within 2 s", reads)
		}
		fails, now = true, now.Add(time.Hour)
		visit(h, "/tags")
		synctest.Wait()
		if !shows("cannot be read: away") {
			t.Error("that tags cannot be read is not said")
		}
		if !shows("/tag?name=order") {
			t.Error("what was read before is gone")
		}
		fails, now = false, now.Add(2*time.Second)
		visit(h, "/tags")
		synctest.Wait()
		if shows("cannot be read") {
			t.Error("a read that failed was not repeated after 2 s")
		}
	})
}
