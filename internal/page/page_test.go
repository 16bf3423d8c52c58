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
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/fleetview"
	"github.com/natsid/natsid/internal/page"
	"github.com/natsid/natsid/internal/page/frozen"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// get returns what a page answers.
func get(t *testing.T, cfg page.Config, path string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	w := httptest.NewRecorder()
	page.New(cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w, w.Body.String()
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
		if absent == strings.Contains(body, html.EscapeString(without)) {
			t.Errorf("%s: want %s", path, text)
		}
	}
}

var all = []string{"/", "/tags", "/tag?name=order", "/numbers", "/alarms", "/charts", "/layout?id=1", "/settings"}

func TestEachViewShowsTheFleet(t *testing.T) {
	cfg := frozen.Config()
	for path, texts := range map[string][]string{
		"/": {"3 of 4 answered", "No answer from delta", "4 min 12 s", "drained", "snowflake: not ready",
			"clock-skew", "throttled: order to 500 IDs/s"},
		"/tags":                      {"1 to 7 of 7 tags", "/tag?name=order", "deleted", "not servable", "12,345"},
		"/tags?q=ORD":                {"1 to 2 of 2 found among 7 tags"},
		"/tags?q=%3Cscript%3E":       {"1 to 1 of 1 found among 7 tags"},
		"/tags?q=nothing":            {"name contains “nothing”"},
		"/tags?by=speed":             {"1 to 3 of 3 found among 7 tags", "no payment/eu"},
		"/tag?name=order":            {"Tag order", "current", "661", "37,200", "tag update --step 240000 order"},
		"/tag?name=none":             {"There is no such tag"},
		"/numbers":                   {"1,024 numbers", "blocked", "delta"},
		"/alarms":                    {"clock-skew", "store-went-back", "What to do", "and 3 like it"},
		"/alarms?kind=clock-skew":    {"clock-skew", "no mark went back"},
		"/charts":                    {"The last hour", "polyline", "IDs a second in the last hour; segment: now"},
		"/layout":                    {"Layout 41", "2080-07-10"},
		"/layout?id=212426304271894": {"under worker number"},
		"/layout?id=-1":              {"That is not an ID of this layout"},
		"/layout?id=x":               {"That is no decimal number"},
		"/settings":                  {"http-page", "environment", "0.1.0"},
	} {
		expect(t, cfg, path, texts...)
	}
}

func TestNoNameOrTextBecomesMarkup(t *testing.T) {
	cfg := frozen.Config()
	hostile := url.QueryEscape(frozen.Hostile)
	for _, path := range append(all, "/tags?q="+hostile, "/tag?name="+hostile, "/layout?id="+hostile,
		"/alarms?kind="+hostile) {
		_, body := get(t, cfg, path)
		body = strings.Replace(body, `<script src="/page.js" defer></script>`, "", 1)
		if strings.Contains(strings.ToLower(body), "<script") {
			t.Errorf("%s: a text is markup: %s", path, body)
		}
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

func (c changed) Look(ctx context.Context, q subjects.ViewRequest) (fleetview.Snapshot, error) {
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
		"No answer from delta, w000, w001, w002, w003, w004, w005, w006, w007, w008 and 91 others: figures")
}

func TestCommandsNameAnotherNamespace(t *testing.T) {
	cfg := frozen.Config()
	cfg.Namespace = "shop"
	expect(t, cfg, "/", "natsid --namespace shop drain WORKER", "no natsid drain")
	expect(t, cfg, "/tag?name=order", "natsid --namespace shop throttle order 100", "no natsid throttle",
		"no natsid get", "no natsid tag")
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return nil, nil }
	expect(t, cfg, "/tags", "natsid --namespace shop tag create order")
}

func TestATagThatLooksLikeAFlagIsNoneInACommand(t *testing.T) {
	cfg := frozen.Config()
	cfg.Look = func(_ context.Context, name string) (segment.Tag, error) {
		return segment.Tag{Name: name, Step: 10, MaxID: 1}, nil
	}
	expect(t, cfg, "/tag?name=--all", "natsid throttle -- --all 100", "natsid get segment -- --all")
}

func TestTagsComeInPages(t *testing.T) {
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) (tags []segment.Tag, _ error) {
		for i := range 100_000 {
			tags = append(tags, segment.Tag{Name: fmt.Sprintf("tag%06d", i), Step: 1000, MaxID: 1})
		}
		return tags, nil
	}
	h := page.New(cfg)
	awaitText(t, h, "/tags", "1 to 50 of 100,000 tags") // a busy machine takes longer than a view waits
	for path, want := range map[string]struct{ first, last, caption string }{
		"/tags":                     {"tag000000", "tag000049", "1 to 50 of 100,000 tags"},
		"/tags?p=1":                 {"tag000050", "tag000099", "51 to 100 of 100,000 tags"},
		"/tags?p=1999":              {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?p=999999999":         {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?p=-5":                {"tag000000", "tag000049", "1 to 50 of 100,000 tags"},
		"/tags?p=99999999999999999": {"tag099950", "tag099999", "99,951 to 100,000 of 100,000 tags"},
		"/tags?q=g0999&p=1":         {"tag099950", "tag099999", "51 to 100 of 100 found among 100,000 tags"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		rows := regexp.MustCompile(`/tag\?name=(tag\d+)`).FindAllStringSubmatch(w.Body.String(), -1)
		if len(rows) != 50 || rows[0][1] != want.first || rows[49][1] != want.last ||
			!strings.Contains(w.Body.String(), want.caption) {
			t.Errorf("%s: %d rows, want %v", path, len(rows), want)
		}
		if w.Body.Len() > 50_000 {
			t.Errorf("%s: %d bytes", path, w.Body.Len())
		}
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	away := errors.New("JetStream <b>is away</b>")
	cfg := frozen.Config()
	cfg.Tags = func(context.Context) ([]segment.Tag, error) { return nil, away }
	cfg.Look = func(context.Context, string) (segment.Tag, error) { return segment.Tag{}, away }
	cfg.Alarms = func(context.Context) ([]subjects.AlarmEvent, error) { return nil, away }
	for path, text := range map[string]string{
		"/":               "The alarms that are kept cannot be read: " + away.Error(),
		"/tags":           "The tags cannot be read: " + away.Error(),
		"/tag?name=order": "The tag cannot be read: " + away.Error(),
		"/alarms":         "The alarms that are kept cannot be read: " + away.Error(),
	} {
		expect(t, cfg, path, text)
	}
}

func TestAViewDoesNotWaitForASlowStore(t *testing.T) {
	cfg := frozen.Config()
	tags, hold := cfg.Tags, make(chan struct{})
	cfg.Tags = func(ctx context.Context) ([]segment.Tag, error) {
		<-hold
		return tags(ctx)
	}
	h := page.New(cfg)
	if !shows(h, "/tags", "The tags cannot be read yet") {
		t.Error("that the tags are being read is not said")
	}
	close(hold)
	awaitText(t, h, "/tags", "1 to 7 of 7 tags")
}

func shows(h http.Handler, path, text string) bool {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code == http.StatusOK && strings.Contains(w.Body.String(), text)
}

// awaitText waits until a view has the text.
func awaitText(t *testing.T, h http.Handler, path, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !shows(h, path, text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not show %q", path, text)
		}
	}
}

func TestATagThatManyLookAtIsReadOnce(t *testing.T) {
	cfg := frozen.Config()
	reads, look := 0, cfg.Look
	cfg.Look = func(ctx context.Context, name string) (segment.Tag, error) {
		reads++
		return look(ctx, name)
	}
	h := page.New(cfg)
	for i := range 200 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/tag?name="+[]string{"order", "none"}[i%2], nil))
		if want := []string{"Ranges in memory", "There is no such tag"}[i%2]; !strings.Contains(w.Body.String(), want) {
			t.Fatalf("the tag is not shown: %s", w.Body)
		}
	}
	if reads != 2 {
		t.Errorf("%d reads of two tags within 2 s", reads)
	}
	for i := range 1000 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/tag?name=t%d", i), nil))
	}
	if reads != 1002 {
		t.Errorf("%d reads of 1002 tags", reads)
	}
}

func TestWhatManyLookAtIsReadOnce(t *testing.T) {
	cfg := frozen.Config()
	now := cfg.Now()
	cfg.Now = func() time.Time { return now }
	reads, fails := 0, false
	cfg.Alarms = func(context.Context) ([]subjects.AlarmEvent, error) {
		reads++
		if fails {
			return nil, errors.New("away")
		}
		return []subjects.AlarmEvent{{Kind: subjects.AlarmClockSkew, Message: "the clock is off", Time: now}}, nil
	}
	h := page.New(cfg)
	look := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/alarms", nil))
		return w.Body.String()
	}
	for range 20 {
		if !strings.Contains(look(), "the clock is off") {
			t.Fatal("no alarm is shown")
		}
	}
	if reads != 1 {
		t.Errorf("%d reads within 2 s", reads)
	}
	fails, now = true, now.Add(time.Hour)
	deadline := time.Now().Add(time.Minute)
	for ; !strings.Contains(look(), "cannot be read: away"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("that alarms cannot be read is not said")
		}
	}
	if !strings.Contains(look(), "the clock is off") {
		t.Error("what was read before is gone")
	}
}
