package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// A held store lists its tags once it is released.
type held struct {
	segment.Store
	release chan struct{}
}

func (h held) List(context.Context, string, int) ([]segment.Tag, error) {
	<-h.release
	return nil, nil
}

func TestTooManyTagRequestsAtOnceGet429(t *testing.T) {
	release := make(chan struct{})
	r := start(t, natstest.Start(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Store = held{release: release}
	})
	codes := make(chan string)
	for range 20 {
		go func() {
			got, err := r.try("id.tag.list", "")
			if err != nil {
				t.Error(err)
			}
			codes <- got.code
		}()
	}
	for range 4 {
		if code := <-codes; code != "429" {
			t.Errorf("code %q, want 429 while 16 requests wait", code)
		}
	}
	close(release)
	for range 16 {
		if code := <-codes; code != "" {
			t.Errorf("code %q, want the 16 that waited to be served", code)
		}
	}
}

func TestTagsAreCreatedAndListedAsJSON(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	made := r.ask("id.tag.create",
		`{"tag":"invoice.eu","step":20,"start":"9007199254740993","description":"of Europe"}`)
	var fields map[string]any
	if err := json.Unmarshal([]byte(made.body), &fields); err != nil {
		t.Fatal(err, made)
	}
	updated, err := time.Parse(time.RFC3339, fmt.Sprint(fields["updated"]))
	if err != nil || time.Since(updated).Abs() > time.Minute {
		t.Errorf("updated %v, %v", updated, err)
	}
	delete(fields, "updated")
	// next_id is a string: JavaScript would round it.
	const want = "map[description:of Europe disabled:false next_id:9007199254740993 step:20 tag:invoice.eu]"
	if got := fmt.Sprint(fields); got != want {
		t.Errorf("created %s", got)
	}
	if !strings.Contains(made.body, `"next_id":"9007199254740993"`) {
		t.Errorf("next_id is not a string: %s", made.body)
	}
	if got := r.one("id.segment.invoice.eu"); got != 9007199254740993 {
		t.Errorf("its first ID is %d", got)
	}
	r.ask("id.tag.create", `{"tag":"bare"}`)
	if got := r.one("id.segment.bare"); got != 1 {
		t.Errorf("the first ID of a tag without start is %d", got)
	}
	r.wantRefusal(r.ask("id.tag.create", `{"tag":"bare"}`), "409") // it exists
}

func TestTagsAreListedPageByPageInOrder(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
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
		`{"tag":"b"}`:             {"b"},
		`{"tag":"c"}`:             nil,
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
	r := start(t, natstest.Start(t), 0, newStore(t))
	const tags = wire.MaxTags
	for i := range tags {
		name := fmt.Sprintf("p%03d%s", i, strings.Repeat("x", subjects.MaxTag-4))
		tag := segment.Tag{Name: name, Step: 10, MaxID: 1, Description: longest}
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
			if info.Tag <= after || len(info.Description) != wire.MaxDescription {
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
	r := start(t, natstest.Start(t), 0, newStore(t))
	for subject, bodies := range map[string][]string{
		"id.tag.create": {
			"", "x", "[]", `"order"`, "{}", "null",
			`{"tag":5}`, `{"tag":"a b"}`, `{"tag":"*"}`, `{"tag":">"}`, `{"tag":"a..b"}`, `{"tag":""}`,
			`{"tag":"x","stepp":5}`, `{"tag":"x"}{}`,
			`{"tag":"x","step":-1}`, `{"tag":"x","step":"5"}`, `{"tag":"x","step":1099511627777}`,
			`{"tag":"x","start":-1}`, `{"tag":"x","start":"y"}`, `{"tag":"x","start":1.5}`,
			`{"tag":"x","start":"9223372036854775808"}`,
			`{"tag":"` + strings.Repeat("a", 129) + `"}`,
			`{"tag":"x","description":"` + strings.Repeat("a", 257) + `"}`,
			`{"tag":"` + strings.Repeat("\x01", 1<<19),
		},
		"id.tag.update": {
			"", "x", "{}", `{"tag":"order"}`, `{"step":5}`, `{"tag":"a b","step":5}`,
			`{"tag":"order","stepp":5}`, `{"tag":"order","step":5}{}`,
			`{"tag":"order","step":0}`, `{"tag":"order","step":-1}`,
			`{"tag":"order","step":1099511627777}`, `{"tag":"order","step":"5"}`,
			`{"tag":"order","next_id":"0"}`, `{"tag":"order","next_id":-1}`,
			`{"tag":"order","next_id":"9223372036854775808"}`, `{"tag":"order","next_id":1.5}`,
			`{"tag":"order","raise_by":0}`, `{"tag":"order","raise_by":"-5"}`,
			`{"tag":"order","raise_by":"9223372036854775807"}`,
			`{"tag":"order","next_id":5000,"raise_by":5}`, `{"tag":"order","max_batch":1000001}`,
			`{"tag":"order","description":"` + strings.Repeat("a", 257) + `"}`,
		},
		"id.control.throttle": {
			"", "{}", `{"rate":-1}`, `{"rate":1000000000001}`, "[]", `{"tag":"order","rate":5}`,
		},
		"id.tag.delete": {"", "x", "{}", "order", `{"tag":"a..b"}`, `{"tag":"order","step":1}`},
		"id.tag.list":   {"x", "[]", `{"limit":1001}`, `{"limit":-1}`, `{"limit":"5"}`, `{"aft":"a"}`, `{"limit":5}x`},
	} {
		for _, body := range bodies {
			t.Run(fmt.Sprintf("%s %.30q", subject, body), func(t *testing.T) {
				r := &rig{T: t, caller: r.caller}
				r.wantRefusal(r.ask(subject, body), "400")
			})
		}
	}
	if tags, err := r.store.List(t.Context(), "", 10); err != nil || len(tags) != 1 {
		t.Errorf("tags %v, %v: one was created", tags, err)
	}
}

func TestATagIsChangedAndEachRefusalSaysWhy(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	for _, tc := range []struct{ body, want string }{
		{`{"tag":"order","step":20}`, `"step":20`},
		{`{"tag":"order","description":"all orders"}`, `"description":"all orders"`},
		{`{"tag":"order","next_id":"9007199254740993","force":true}`, `"next_id":"9007199254740993"`},
		{`{"tag":"order","next_id":"9007199254740993"}`, `"next_id":"9007199254740993"`}, // the same once more
		{`{"tag":"order","raise_by":"7"}`, `"next_id":"9007199254741000"`},
		{`{"tag":"order","step":30,"description":"","raise_by":1000}`,
			`"step":30,"next_id":"9007199254742000","description":""`},
	} {
		if got := r.ask("id.tag.update", tc.body); !strings.Contains(got.body, tc.want) || got.code != "" {
			t.Errorf("%s: %+v, want %s", tc.body, got, tc.want)
		}
	}
	if got := r.one("id.segment.order"); got != 9007199254742000 {
		t.Errorf("after the changes: ID %d, want 9007199254742000", got)
	}
	r.ask("id.tag.update", `{"tag":"order","next_id":"9007199254800000"}`)
	if got := r.one("id.segment.order"); got != 9007199254800000 {
		t.Errorf("with ranges in memory raised to 9007199254800000: ID %d", got)
	}
	for body, want := range map[string][]string{
		`{"tag":"order","next_id":"9007199254740993"}`: {
			"400", "next_id is 90071992548000", "and only rises", "raise_by"},
		`{"tag":"order","raise_by":"9223372036854775000"}`: {
			"400", "next_id is 90071992548000", "at most 9223372036854775807"},
		`{"tag":"order","next_id":9223372036854775807}`: {
			"400", "next_id is 90071992548000", "more than 1099511627776", "force"},
		`{"tag":"order","raise_by":1099511627777}`:                  {"400", "more than 1099511627776", "force"},
		`{"tag":"order","step":9,"force":true}`:                     {"400", "force is for next_id and raise_by"},
		`{"tag":"unknown","step":5}`:                                {"404", "no such tag"},
		`{"tag":"order","step":0}`:                                  {"400", "step 0, want at least 1"},
		`{"tag":"order","raise_by":-3}`:                             {"400", "-3", "is not an ID"},
		`{"tag":"order","next_id":9007199254900000,"raise_by":"1"}`: {"400", "exclude each other"},
		`{"tag":"order"}`:                                           {"400", "nothing to change"},
		`{"tag":"order","nextid":"5"}`:                              {"400", "nextid", `"next_id":"5000001"`},
	} {
		got := r.ask("id.tag.update", body)
		r.wantRefusal(got, want[0])
		for _, word := range want[1:] {
			if !strings.Contains(got.text, word) {
				t.Errorf("%s: %q, want a word of %q", body, got.text, word)
			}
		}
	}
}

func TestADeletedTagIsNotServedThoughItWasInMemory(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	if got := r.one("id.segment.order"); got != 1 {
		t.Fatal(got)
	}
	r.eventually("load a second range ahead", func() bool {
		tag, err := r.store.Look(t.Context(), "order")
		return err == nil && tag.MaxID == 21
	})
	for range 2 { // a second time is not an error
		got := r.ask("id.tag.delete", `{"tag":"order"}`)
		if !strings.Contains(got.body, `"disabled":true`) || !strings.Contains(got.body, `"next_id":"21"`) {
			t.Fatalf("%+v", got)
		}
	}
	for _, got := range []reply{r.ask("id.segment.order", ""), r.ask("id.tag.update", `{"tag":"order","step":5}`)} {
		r.wantRefusal(got, "404")
		if got.text != "the tag was deleted" {
			t.Errorf("%q", got.text)
		}
	}
	r.wantRefusal(r.ask("id.tag.delete", `{"tag":"unknown"}`), "404")
	r.ask("id.tag.create", `{"tag":"order","step":5}`)
	if got := r.one("id.segment.order"); got != 21 {
		t.Errorf("created again: %d, want it to continue above what was loaded, at 21", got)
	}
}

// A change is announced, too, if the store does not say whether it was made.
func TestEveryChangeIsAnnouncedWithTheTagsName(t *testing.T) {
	sure, store := newStore(t), newStore(t)
	store.Store = unsure{store.Store}
	for code, store := range map[string]*segmenttest.Faulty{"": sure, "503": store} {
		r := start(t, natstest.Start(t), 0, store)
		announced, err := r.caller.SubscribeSync("id.tag.changed")
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct{ subject, body, want string }{
			{"id.tag.create", `{"tag":"made.eu"}`, "made.eu"},
			{"id.tag.update", `{"tag":"order","step":3}`, "order"},
			{"id.tag.delete", `{"tag":"order"}`, "order"},
		} {
			if got := r.ask(tc.subject, tc.body); got.code != code {
				t.Fatalf("%+v", got)
			}
			if m, err := announced.NextMsg(30 * time.Second); err != nil || string(m.Data) != tc.want || m.Reply != "" {
				t.Errorf("%s: announced %+v, %v, want %s", tc.subject, m, err, tc.want)
			}
		}
		if code != "" {
			continue
		}
		r.ask("id.tag.update", `{"tag":"unknown","step":3}`)
		if m, err := announced.NextMsg(100 * time.Millisecond); err == nil {
			t.Errorf("announced %s, which was not changed", m.Data)
		}
	}
}

func TestAMessageThatNamesNoTagIsIgnored(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	for _, body := range []string{"", " ", "a b", "a..b", strings.Repeat("x", 129), "\x00", "order"} {
		if err := r.caller.Publish("id.tag.changed", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	r.one("id.segment.order")
}

// following returns a rig that follows its store, and has more IDs of the tag big in memory than a test uses. Its first
// poll is over, and its requests have time.
func following(t *testing.T) *rig {
	r := start(t, natstest.Start(t), 0, newStore(t), func(s *segment.Config, w *worker.Config) {
		s.Deadline, s.LoadTimeout, w.Deadline = 30*time.Second, 20*time.Second, 30*time.Second
	})
	var polled atomic.Bool
	r.store.OnPoll(func(_ context.Context, see func(segment.Listing), poll func(func(segment.Listing)) error) error {
		defer polled.Store(true)
		return poll(see)
	})
	r.follow()
	r.eventually("poll", polled.Load)
	if _, err := r.store.Create(t.Context(), segment.Tag{Name: "big", Step: 1_000_000, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	r.one("id.segment.big")
	return r
}

func TestAfterAReconnectAllTagsAreLookedUp(t *testing.T) {
	r := following(t)
	if err := r.store.Delete(t.Context(), "big"); err != nil { // without a message
		t.Fatal(err)
	}
	r.one("id.segment.big")
	r.conn().Close() // as where it is lost
	r.eventually("connect again", func() bool { return r.dials.Load() > 1 && r.conn().Flush() == nil })
	r.eventually("poll", func() bool {
		got, err := r.try("id.segment.big", "")
		return err == nil && got.code == "404"
	})
}

func TestAMessageMakesAWorkerLookTheTagUp(t *testing.T) {
	r := following(t)
	raised, err := r.store.Update(t.Context(), "big", segment.Change{RaiseBy: 7000})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.one("id.segment.big"); int64(got) >= raised.MaxID {
		t.Fatalf("%d before the message", got)
	}
	if err := r.caller.Publish("id.tag.changed", []byte("big")); err != nil {
		t.Fatal(err)
	}
	r.eventually("discard what is below", func() bool { return int64(r.one("id.segment.big")) >= raised.MaxID })
}

// unsure is a store whose changes are made, but whose answers are lost.
type unsure struct{ segment.Store }

func (u unsure) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	_, err := u.Store.Create(ctx, t, revive)
	return segment.Tag{}, errors.Join(err, context.DeadlineExceeded)
}

func (u unsure) Update(ctx context.Context, tag string, c segment.Change) (segment.Tag, error) {
	_, err := u.Store.Update(ctx, tag, c)
	return segment.Tag{}, errors.Join(err, context.DeadlineExceeded)
}

func (u unsure) Delete(ctx context.Context, tag string) error {
	return errors.Join(u.Store.Delete(ctx, tag), context.DeadlineExceeded)
}

func TestATagKeepsItsRules(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	made := r.ask("id.tag.create", `{"tag":"so","period":"daily","zone":"Asia/Shanghai","max_hole":"100"}`)
	var info subjects.TagInfo
	if err := json.Unmarshal([]byte(made.body), &info); err != nil || info.Period != "daily" ||
		info.Zone != "Asia/Shanghai" || info.MaxHole != 100 {
		t.Fatalf("%+v, %v", made, err)
	}
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	today := func() subjects.ID { return subjects.ID(segment.Daily.Base(time.Now().In(zone)) + 1) }
	first, got := today(), r.one("id.segment.so")
	if got != first && got != today() {
		t.Errorf("the first ID is %d, want %d", got, first)
	}
}
