package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestSegmentRepliesAreWhatTheWireSays(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	for _, tc := range []struct{ body, want string }{
		{"", "1"}, {"1", "2"}, {"1\n", "3"}, {"7", "4-10"}, {"2\n", "11-12"},
	} {
		if got := r.ask("id.segment.order", tc.body); got.body != tc.want || got.code != "" {
			t.Errorf("body %q: %+v, want %q", tc.body, got, tc.want)
		}
	}
}

func TestABatchOfManyRangesIsExactlyAsLongAsRequested(t *testing.T) {
	url, store := natstest.Start(t), newStore(t)
	r := start(t, url, 0, store)
	next := subjects.ID(1)
	var others []segment.Range // what another worker loads: a hole for this one
	for range 20 {
		l, err := store.Load(t.Context(), "order", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, l.Range)
		for _, run := range r.ids(r.ask("id.segment.order", "25"), 25) {
			if run.First < next {
				t.Fatalf("%v after %d", run, next)
			}
			for _, o := range others {
				if int64(run.First) < o.End && o.Start <= int64(run.Last) {
					t.Fatalf("%v is of %v, which the other worker has", run, o)
				}
			}
			next = run.Last + 1
		}
	}
	r.ids(r.ask("id.segment.order", fmt.Sprint(maxBatch)), maxBatch)
}

func TestSnowflakeRepliesAreWhatTheWireSays(t *testing.T) {
	r := start(t, natstest.Start(t), 1, newStore(t))
	last := int64(-1)
	for _, tc := range []struct {
		subject, body string
		n, business   int64
	}{
		{"id.snowflake", "", 1, 0},
		{"id.snowflake", "1\n", 1, 0},
		{"id.snowflake", "5", 5, 0},
		{"id.snowflake.0", "", 1, 0},
		{"id.snowflake.15", "7\n", 7, 15},
		{"id.snowflake", fmt.Sprint(maxBatch), maxBatch, 0},
	} {
		for _, run := range r.ids(r.ask(tc.subject, tc.body), tc.n) {
			first, err := layout.Decode(run.First)
			end, err2 := layout.Decode(run.Last)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if first.Worker != 1 || first.Business != tc.business || time.Since(first.Time).Abs() > slack {
				t.Errorf("%s %q: %v is %+v", tc.subject, tc.body, run, first)
			}
			if first.Tick != end.Tick || end.Sequence-first.Sequence != run.Len()-1 {
				t.Errorf("%s %q: %v is not a run of one tick", tc.subject, tc.body, run)
			}
			if at := first.Tick<<12 + first.Sequence; at <= last {
				t.Errorf("%s %q: %v does not come after what was issued before", tc.subject, tc.body, run)
			}
			last = end.Tick<<12 + end.Sequence
		}
	}
}

func TestSnowflakesFollowAStepOfTheClock(t *testing.T) {
	r := start(t, natstest.Start(t), 1, newStore(t))
	for _, step := range []time.Duration{0, 10 * time.Minute, 20 * time.Minute} {
		r.offset.Store(step.Milliseconds())
		want := time.Now().Add(step).Truncate(time.Millisecond)
		r.eventually("date snowflakes by the clock", func() bool {
			id, err := layout.Decode(r.one("id.snowflake"))
			return err == nil && !id.Time.Before(want)
		})
	}
}

func TestBadInputIsRefusedWithAReasonAndCostsNoID(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	type input struct{ law, subject, body string }
	inputs := []input{
		{"a wildcard is no tag", "id.segment.*", ""},
		{"nor is the other", "id.segment.>", ""},
		{"nor one of many tokens", "id.segment.order.>", ""},
		{"a control character", "id.segment.a\x01b", ""},
		{"a NUL", "id.segment.\x00", ""},
		{"an escape", "id.segment.\x1b[31m", ""},
		{"a DEL", "id.segment.a\x7f", ""},
		{"a byte outside the grammar", "id.segment.a$b", ""},
		{"a byte outside ASCII", "id.segment.a\xffb", ""},
		{"a letter outside ASCII", "id.segment.bücher", ""},
		{"a tag of 129 bytes", "id.segment." + strings.Repeat("a", 129), ""},
		{"a business that is no number", "id.snowflake.x", ""},
		{"a business with a sign", "id.snowflake.-1", ""},
		{"a business with a leading zero", "id.snowflake.01", ""},
		{"a business beyond the layout", "id.snowflake.16", ""},
		{"a business beyond int64", "id.snowflake.99999999999999999999", ""},
		{"two businesses", "id.snowflake.1.1", ""},
		{"a wildcard for a business", "id.snowflake.*", ""},
	}
	for _, body := range []string{
		"0", "-1", "+1", "007", "1e3", "1.0", " 1", "1 ", "5\n5", "5\n\n", "\n", "5\r\n", "x",
		"\x00", "{}", "0x10", "٣",
		"99999999999999999999", fmt.Sprint(maxBatch + 1), strings.Repeat("1", 1<<20),
	} {
		inputs = append(inputs,
			input{fmt.Sprintf("the body %.20q", body), "id.segment.order", body},
			input{fmt.Sprintf("the body %.20q", body), "id.snowflake", body})
	}
	next := r.one("id.segment.order")
	for _, in := range inputs {
		t.Run(in.law, func(t *testing.T) {
			r := &rig{T: t, caller: r.caller}
			r.wantRefusal(r.ask(in.subject, in.body), "400")
			next++
			if got := r.one("id.segment.order"); got != next {
				t.Errorf("the next ID is %d, want %d", got, next)
			}
			r.one("id.snowflake")
		})
	}
	if got := r.ask("id.segment."+strings.Repeat("a", 128), ""); got.code != "404" {
		t.Errorf("a tag of 128 bytes: %+v, want 404: it is well formed", got)
	}
}

func TestAnExhaustedTagIs410AndLosesNothing(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	const end = 1<<63 - 1
	if _, err := r.store.Create(t.Context(), segment.Tag{Name: "full", Step: 10, MaxID: end - 15}, false); err != nil {
		t.Fatal(err)
	}
	got := r.ask("id.segment.full", "16")
	if r.wantRefusal(got, "410"); got.maxBatch != 15 {
		t.Errorf("%+v, want that 15 are left", got)
	}
	if got := r.one("id.segment.full"); got != end-15 {
		t.Errorf("then %d, want the first that is left", got)
	}
}

func TestOneTooManyWaitingGets429(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), func(cfg *segment.Config, _ *worker.Config) {
		cfg.MaxWaiting, cfg.Deadline = 2, time.Minute
	})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	r.store.OnLoad(func(ctx context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		<-release
		return load()
	})
	inbox := r.caller.NewInbox()
	sub, err := r.caller.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := r.caller.PublishRequest("id.segment.order", fmt.Sprintf("%s.%d", inbox, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (int, reply) {
		t.Helper()
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return int(m.Subject[len(m.Subject)-1] - '0'), read(m)
	}
	i, got := next()
	r.wantRefusal(got, "429")
	if want := deadline / 10; got.retryAfter != want {
		t.Errorf("the caller is asked to wait for %v, want %v", got.retryAfter, want)
	}
	if i != 2 {
		t.Errorf("request %d was refused, want the last to come", i)
	}
	free()
	for want := range 2 {
		if i, got := next(); i != want || got.body != fmt.Sprint(want+1) {
			t.Errorf("request %d got %+v, want request %d to get its ID", i, got, want)
		}
	}
}

func TestWhatCannotBeServedIsAnswered503ByTheDeadline(t *testing.T) {
	t.Parallel()
	r := start(t, natstest.Start(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Store = hanging{t: t}
	})
	if _, err := r.store.Create(t.Context(), segment.Tag{Name: "well", Step: 10, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	r.store.OnLoad(func(ctx context.Context, tag string, load func() (segment.Range, error)) (segment.Range, error) {
		if tag == "well" {
			return load()
		}
		return slowly(hang)(ctx, tag, load)
	})
	var wg sync.WaitGroup
	for subject, body := range map[string]string{
		"id.segment.order": "5", "id.tag.create": `{"tag":"x"}`, "id.tag.list": "",
	} {
		wg.Go(func() {
			got, err := r.try(subject, body)
			if err != nil {
				t.Errorf("%s: %v", subject, err)
				return
			}
			r.wantRefusal(got, "503")
			if got.took < deadline/2 || got.took > deadline+slack {
				t.Errorf("%s: answered after %v, deadline %v", subject, got.took, deadline)
			}
		})
	}
	late := 0 // a busy machine delays some
	for range 20 {
		if got := r.ask("id.segment.well", ""); got.code != "" || got.took > deadline/2 {
			late++
		}
	}
	if late > 10 {
		t.Errorf("another tag waits behind the one that hangs, %d of 20 times", late)
	}
	wg.Wait()
}

// A hanging store answers nothing. It must not be waited for beyond the deadline.
type hanging struct {
	segment.Store
	t *testing.T
}

func (h hanging) Create(ctx context.Context, _ segment.Tag, _ bool) (segment.Tag, error) {
	return segment.Tag{}, h.hang(ctx)
}

func (h hanging) List(ctx context.Context, _ string, _ int) ([]segment.Tag, error) {
	return nil, h.hang(ctx)
}

func (h hanging) hang(ctx context.Context) error {
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > deadline {
		h.t.Errorf("the store may take %v, want %v", time.Until(end), deadline)
	}
	<-ctx.Done()
	return ctx.Err()
}

// A broken store fails for a reason that no caller may see.
type broken struct{ segment.Store }

var errPrivate = errors.New("dial tcp 10.0.0.7: refused")

func (broken) Create(context.Context, segment.Tag, bool) (segment.Tag, error) {
	return segment.Tag{}, errPrivate
}

func (broken) List(context.Context, string, int) ([]segment.Tag, error) { return nil, errPrivate }

func TestAStoreThatFailsIs503AndItsReasonIsNotSent(t *testing.T) {
	breaks := func(_ *segment.Config, cfg *worker.Config) { cfg.Store = broken{} }
	r := start(t, natstest.Start(t), 0, newStore(t), breaks)
	r.store.OnLoad(func(context.Context, string, func() (segment.Range, error)) (segment.Range, error) {
		return segment.Range{}, errPrivate
	})
	for subject, body := range map[string]string{
		"id.tag.create": `{"tag":"x"}`, "id.tag.list": "", "id.segment.order": "",
	} {
		got := r.ask(subject, body)
		r.wantRefusal(got, "503")
		if strings.Contains(got.text, "10.0.0.7") {
			t.Errorf("%s: %q", subject, got.text)
		}
	}
	r.store.OnLoad(nil)
	r.one("id.segment.order")
}

func TestAMessageWithoutAReplySubjectCostsNoID(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	first := r.one("id.segment.order")
	for _, subject := range []string{
		"id.segment.order", "id.snowflake", "id.snowflake.3", "id.tag.create", "id.tag.list",
	} {
		for range 5 {
			if err := r.caller.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.one("id.segment.order"); got != first+1 {
		t.Errorf("the next ID is %d, want %d", got, first+1)
	}
	r.stop()
	close(r.answers)
	for a := range r.answers {
		if a.Mode != worker.Segment {
			t.Errorf("answered %+v", a)
		}
	}
}

func TestEachAnswerIsObserved(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	for _, tc := range []struct {
		subject, body string
		want          worker.Answer
	}{
		// The first load.
		{"id.segment.order", "", worker.Answer{Mode: worker.Segment, Code: 200, IDs: 1, Parked: true}},
		{"id.segment.order", "5", worker.Answer{Mode: worker.Segment, Code: 200, IDs: 5}},
		{"id.segment.order", "0", worker.Answer{Mode: worker.Segment, Code: 400}},
		{"id.segment.unknown", "", worker.Answer{Mode: worker.Segment, Code: 404, Parked: true}},
		{"id.snowflake", "3", worker.Answer{Mode: worker.Snowflake, Code: 200, IDs: 3}},
		{"id.snowflake.x", "", worker.Answer{Mode: worker.Snowflake, Code: 400}},
		{"id.tag.list", "", worker.Answer{Mode: worker.Tags, Code: 200}},
		{"id.tag.create", "", worker.Answer{Mode: worker.Tags, Code: 400}},
	} {
		r.ask(tc.subject, tc.body)
		got := <-r.answers
		if got.Took <= 0 {
			t.Errorf("%s %q: took %v", tc.subject, tc.body, got.Took)
		}
		if got.Took = 0; got != tc.want {
			t.Errorf("%s %q: observed %+v, want %+v", tc.subject, tc.body, got, tc.want)
		}
	}
}
