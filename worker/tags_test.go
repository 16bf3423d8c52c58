package worker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestTooManyTagRequestsAtOnceAreToldToBackOff(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) { cfg.Store = hanging{} })
	var mu sync.Mutex
	codes := map[string]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := r.try("id.tag.list", "")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[got.code]++
		})
	}
	wg.Wait()
	if codes["429"] != 4 || codes["503"] != 16 {
		t.Errorf("codes %v, want 16 to wait and 4 to be refused", codes)
	}
}

func TestTagsAreMadeAndListedAsJSON(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	made := r.ask("id.tag.create", `{"tag":"invoice.eu","step":20,"start":"9007199254740993","description":"of Europe"}`)
	var fields map[string]any
	if err := json.Unmarshal([]byte(made.body), &fields); err != nil {
		t.Fatal(err, made)
	}
	updated, err := time.Parse(time.RFC3339, fmt.Sprint(fields["updated"]))
	if err != nil || time.Since(updated).Abs() > time.Minute {
		t.Errorf("updated %v, %v", updated, err)
	}
	delete(fields, "updated")
	// max_id is a string: JavaScript would round it.
	if got := fmt.Sprint(fields); got != "map[description:of Europe disabled:false max_id:9007199254740993 step:20 tag:invoice.eu]" {
		t.Errorf("made %s", got)
	}
	if !strings.Contains(made.body, `"max_id":"9007199254740993"`) {
		t.Errorf("max_id is no string: %s", made.body)
	}
	if got := r.one("id.segment.invoice.eu"); got != 9007199254740993 {
		t.Errorf("its first ID is %d", got)
	}
	r.ask("id.tag.create", `{"tag":"bare"}`)
	if got := r.one("id.segment.bare"); got != 1 {
		t.Errorf("the first ID of a tag without start is %d", got)
	}
	r.wantRefusal(r.ask("id.tag.create", `{"tag":"bare"}`), "400") // it exists
}

func TestADeletedTagMadeAgainGoesOnAboveItsIDs(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	if _, err := r.store.Load(t.Context(), "order", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Delete(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	if got := r.ask("id.tag.create", `{"tag":"order"}`); !strings.Contains(got.body, `"max_id":"11"`) || !strings.Contains(got.body, `"step":1000`) {
		t.Errorf("%+v", got)
	}
	if got := r.one("id.segment.order"); got != 11 {
		t.Errorf("then %d", got)
	}
}

func TestTagsAreListedPageByPageInOrder(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	for _, tag := range []string{"b", "a.b", "a"} {
		r.ask("id.tag.create", fmt.Sprintf(`{"tag":%q}`, tag))
	}
	list := func(body string) (names []string) {
		t.Helper()
		var page []subjects.TagInfo
		if got := r.ask("id.tag.list", body); json.Unmarshal([]byte(got.body), &page) != nil {
			t.Fatalf("%s: %+v", body, got)
		}
		for _, info := range page {
			names = append(names, info.Tag)
		}
		return names
	}
	for body, want := range map[string][]string{
		"":                        {"a", "a.b", "b", "order"},
		"{}":                      {"a", "a.b", "b", "order"},
		`{"limit":3}`:             {"a", "a.b", "b"},
		`{"after":"a.b"}`:         {"b", "order"},
		`{"after":"a","limit":1}`: {"a.b"},
	} {
		if got := list(body); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
	if got := r.ask("id.tag.list", `{"after":"z"}`); got.body != "[]" {
		t.Errorf("past the end: %q, want an empty array", got.body)
	}
}

func TestAPageThatWouldBeTooLargeForNATSIsCutShort(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	const tags = subjects.MaxTags
	for i := range tags {
		worst := strings.Repeat("\x01", subjects.MaxDescription) // six bytes each in JSON
		tag := segment.Tag{Name: fmt.Sprintf("p%03d%s", i, strings.Repeat("x", subjects.MaxTag-4)), Step: 10, MaxID: 1, Description: worst}
		if _, err := r.store.Create(t.Context(), tag, false); err != nil {
			t.Fatal(err)
		}
	}
	listed, after := 0, "order"
	for {
		var page []subjects.TagInfo
		got := r.ask("id.tag.list", fmt.Sprintf(`{"after":%q}`, after))
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatalf("after %s: %s %s, %v", after, got.code, got.text, err)
		}
		if len(page) == 0 {
			break
		}
		for _, info := range page {
			if info.Tag <= after || len(info.Description) != subjects.MaxDescription {
				t.Fatalf("%+v after %s", info, after)
			}
			after = info.Tag
			listed++
		}
	}
	if listed != tags {
		t.Errorf("%d of %d tags were listed", listed, tags)
	}
}

func TestBadTagRequestsAreRefusedWithAReason(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	for subject, bodies := range map[string][]string{
		"id.tag.create": {
			"", "x", "[]", `"order"`, "{}", "null", `{"tag":5}`, `{"tag":"a b"}`, `{"tag":"*"}`, `{"tag":">"}`, `{"tag":"a..b"}`, `{"tag":""}`,
			`{"tag":"x","stepp":5}`, `{"tag":"x"}{}`, `{"tag":"x","step":-1}`, `{"tag":"x","step":"5"}`, `{"tag":"x","step":1099511627777}`,
			`{"tag":"x","start":-1}`, `{"tag":"x","start":"y"}`, `{"tag":"x","start":1.5}`, `{"tag":"x","start":"9223372036854775808"}`,
			`{"tag":"` + strings.Repeat("a", 129) + `"}`, `{"tag":"x","description":"` + strings.Repeat("a", 257) + `"}`, `{"tag":"` + strings.Repeat("\x01", 1<<19),
		},
		"id.tag.list": {"x", "[]", `{"limit":1001}`, `{"limit":-1}`, `{"limit":"5"}`, `{"aft":"a"}`, `{"limit":5}x`},
	} {
		for _, body := range bodies {
			t.Run(fmt.Sprintf("%s %.30q", subject, body), func(t *testing.T) {
				r := &rig{T: t, caller: r.caller}
				r.wantRefusal(r.ask(subject, body), "400")
			})
		}
	}
	if tags, err := r.store.List(t.Context(), "", 10); err != nil || len(tags) != 1 {
		t.Errorf("tags %v, %v: one was made", tags, err)
	}
}
