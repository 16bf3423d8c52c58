//go:build !race

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mutant"
	"github.com/natsid/natsid/proof/conformance/internal/adapter"
	"github.com/natsid/natsid/proof/conformance/internal/scenarios"
)

// A broken client is package client with one law broken, and the scenario that finds it.
func breaks(scenario, says, file, text, code string) mutant.Mutant {
	return mutant.Mutant{
		Name: scenario + ": " + says, Edits: []mutant.Edit{mutant.Text(file, text, code)},
		Args: []string{"-test.run=^TestGo$/^" + scenario + "$"},
	}
}

const (
	clientGo   = "../../client/client.go"
	errorsGo   = "../../client/errors.go"
	flightGo   = "../../client/flight.go"
	handleGo   = "../../client/handle.go"
	inboxGo    = "../../client/inbox.go"
	mergeGo    = "../../client/merge.go"
	prefetchGo = "../../client/prefetch.go"
	runsGo     = "../../client/runs.go"
	tagsGo     = "../../client/tags.go"
	targetGo   = "../../client/target.go"

	whenClosed = `return fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionClosed)`
)

// mutants break the laws, one for each scenario.
var mutants = []mutant.Mutant{
	breaks("contract", "a call before connect has an error of no kind", "internal/goadapter/link.go",
		"return nil, errNotConnected", `return nil, fmt.Errorf("not connected")`),
	breaks("ids", "IDs pass through a double", runsGo,
		"return run.First + subjects.ID(i)", "return subjects.ID(float64(run.First + subjects.ID(i)))"),
	breaks("tags", "a tag is sent as it is", handleGo,
		"err := subjects.CheckTag(tag); err != nil", "err := subjects.CheckTag(tag); false"),
	breaks("counts", "a count of 0 is sent", handleGo, "n < 1 || n > MaxIDs", "n < 0 || n > MaxIDs"),
	breaks("replies", "runs that overlap are accepted", runsGo,
		"sorted[i].Last >= sorted[i+1].First", "sorted[i].Last < 0"),
	breaks("errors", "an unknown tag is a malformed request", errorsGo,
		"subjects.NotFound: ErrUnknownTag", "subjects.NotFound: ErrBadRequest"),
	breaks("ages", "an age has no bound", handleGo, "|| s.maxAge > subjects.MaxPrefetchAge:", "|| s.prefetch < -99:"),
	breaks("layouts", "a business has the bits above it", "../../snowflake/layout.go",
		"Business: int64(id>>l.Sequence) & l.MaxBusiness(),", "Business: int64(id >> l.Sequence),"),
	breaks("foreign-reply", "a reply of another program is asked for again", flightGo,
		"f.end(answer{err: f.target.client.notNatsid(f.target.subject, err)})",
		"f.retry(f.target.client.notNatsid(f.target.subject, err), 0)"),
	breaks("half-answer", "half an answer serves half the calls", runsGo, "if left > 0 {", "if left > int64(n)/2 {"),
	breaks("answers-twice", "all requests have one reply subject", inboxGo, "b.last++", "b.last = 1"),

	breaks("merging", "each call has a request", handleGo, "id, err = h.merger.next(ctx)",
		"a := h.target.request(ctx, 1)\nif err = a.err; err == nil {\nid = a.runs[0].First\n}"),
	breaks("merging-fresh", "calls take IDs that others left", handleGo, "if s.prefetch > 0 {",
		"if s.prefetch == 0 {\nh.stock = newStock(t, 100, time.Second)\n}\nif s.prefetch > 0 {"),
	breaks("merging-apart", "tags share their requests", handleGo,
		"h := c.handles[s]", "s.subject = c.cfg.Namespace.Segment(`order`)\nh := c.handles[s]"),
	breaks("merging-alone", "a timer gathers calls", mergeGo,
		"runtime.Gosched() // let concurrent calls join", "time.Sleep(10 * time.Millisecond)"),
	breaks("merging-parallel", "one batch is under way at most", mergeGo,
		"m.underWay == mostUnderWay {", "m.underWay > 0 {"),
	breaks("merging-limit", "a worker's limit fails the calls", flightGo,
		"f.end(answer{err: err, most: e.MaxBatch})", "f.end(answer{err: err})"),
	breaks("merging-left", "one call more than there are numbers fails all", mergeGo,
		"if n >= int64(b.runs.Len()) {", "if b.err != nil {"),
	breaks("merging-left", "the numbers that are left are a limit for ever", mergeGo,
		"errors.Is(a.err, ErrBadRequest)", "!errors.Is(a.err, ErrClosed)"),
	breaks("busy", "any number of calls may wait", mergeGo,
		"m.waiting >= waitingMost*m.target.most", "m.waiting >= 1000*m.target.most"),

	breaks("deadline", "the client's own limit is never reached", tagsGo,
		"return context.WithTimeout(ctx, c.cfg.Timeout)", "return context.WithTimeout(ctx, 6*c.cfg.Timeout)"),
	breaks("late-answer", "a late answer goes to the last request", inboxGo, "f := b.wait[token]",
		"if b.wait[token] == nil {\ntoken = b.last\n}\nf := b.wait[token]"),
	breaks("cancel", "the end of one call ends the batch", mergeGo, "case <-bounded.Done():\n",
		"case <-bounded.Done():\nif b.taken.Add(1) == 1 {\nb.err = ErrClosed\nclose(b.done)\n}\n"),
	breaks("unwanted", "copies are sent for calls that have ended", flightGo,
		"if !f.wanted() {", "if false {"),

	breaks("hang", "no other worker is asked", flightGo,
		"if spent := len(f.open) > 0; !spent || f.target.spare.spend(time.Now()) {",
		"if spent := len(f.open) > 0; !spent {"),
	breaks("patience", "all workers have 100 ms", targetGo,
		"return min(max(t.usual+4*t.spread, hedgeSoonest), hedgeLatest)", "return hedgeSoonest"),
	breaks("first-answer", "the answer to the last copy counts", flightGo,
		"if f.ended || i < 0 {", "if f.ended || i < len(f.open)-1 {"),
	breaks("large", "large requests are copied as small ones", flightGo, "if f.n > hedgedMost &&", "if f.n < 0 &&"),
	breaks("budget", "copies have no budget", targetGo,
		"if s.used+1 > spareLeast+s.recent*sparePerRequest {", "if s.used < 0 {"),

	breaks("retry", "a 503 ends the call", flightGo,
		"case errors.Is(err, ErrNotServed), errors.Is(err, ErrUnavailable):", "case errors.Is(err, ErrNotServed):"),
	breaks("back-off", "pauses do not grow", flightGo,
		"f.pause = min(max(2*pause, pauseFirst), pauseLongest)", "f.pause = pauseFirst"),
	breaks("throttled", "the wait of a 429 is not kept", flightGo, "f.target.holdFor(e.RetryAfter)", "_ = e"),
	breaks("never-again", "each refusal is retried", flightGo,
		"f.end(answer{err: err, most: e.MaxBatch})", "f.retry(err, 0)"),
	breaks("never-again", "a stop is asked about until the time is up", flightGo,
		"errors.Is(err, ErrUnavailable) && e.RetryAfter > 0", "e.RetryAfter < 0"),
	breaks("no-responders", "a moment without workers ends calls", flightGo,
		"errors.Is(err, ErrNotServed) && f.target.client.cfg.FailFast):", "errors.Is(err, ErrNotServed)):"),
	breaks("no-responders", "copies that no worker saw use up the budget", flightGo,
		"if t.spent && errors.Is(err, ErrNotServed) {", "if t.spent && f == nil {"),
	breaks("fail-fast", "the option changes nothing", clientGo,
		"inbox.nc = nc", "inbox.nc, c.cfg.FailFast = nc, false"),
	breaks("lost-connection", "calls end with their connection", flightGo,
		"if !nc.IsConnected() || f.target.held() > 0 {",
		"if !nc.IsConnected() {\nf.end(answer{err: ErrClosed})\nreturn\n}\nif f.target.held() > 0 {"),

	breaks("prefetch", "nothing is held", handleGo, "if s.prefetch > 0 {", "if false {"),
	breaks("prefetch-age", "the age counts from the answer", prefetchGo,
		"k.held = append(k.held, b)\n\t}\n\tif", "b.until, b.by = clock()+k.maxAge, "+
			"time.Now().Round(0).Add(k.maxAge)\nk.held = append(k.held, b)\n\t}\n\tif"),
	breaks("prefetch-many", "a call for many always has a request of its own", handleGo,
		"if runs = h.stock.nextN(n); runs != nil {", "if runs = h.stock.nextN(n); runs != nil && n < 0 {"),
	breaks("prefetch-many", "a call that takes no held ID requests a range", prefetchGo, "if n <= held {", "if true {"),
	breaks("prefetch-many", "a call for many gets a part", prefetchGo, "return held >= n", "return held > 0"),
	breaks("prefetch-strict", "workers do not learn of it", prefetchGo,
		"header := nats.Header{subjects.HeaderPrefetch: {maxAge.String()}}",
		"_ = subjects.HeaderPrefetch\nheader := nats.Header{}"),

	breaks("close", "Close does nothing", clientGo, "c.inbox.close()", ""),
	breaks("disconnect", "a closed connection may come back", inboxGo, whenClosed, "return nil"),
	{
		Name: "drain: a connection that drains may come back", Args: []string{"-test.run=^TestGo$/^drain$"},
		Edits: []mutant.Edit{
			mutant.Text(inboxGo, whenClosed, "return nil"),
			mutant.Text(inboxGo, "return fmt.Errorf(\"%w: %w\", ErrClosed, nats.ErrConnectionDraining)", "return nil"),
		},
	},
	breaks("statistics", "retries are not counted", flightGo, "f.target.counts.retries.Add(1)", ""),
}

func TestMutants(t *testing.T) {
	for _, sc := range scenarios.All {
		finds := func(m mutant.Mutant) bool { return strings.HasPrefix(m.Name, sc.Name+": ") }
		if !slices.ContainsFunc(mutants, finds) {
			t.Errorf("no mutant shows that the scenario %q can fail", sc.Name)
		}
	}
	mutant.Suite{Mutants: mutants, Finding: regexp.MustCompile(`it falls short: (.*)`)}.Run(t)
}

// The wire in C, broken in one way for each scenario that a language without a client has to care for itself.
func TestMutantsInC(t *testing.T) {
	for scenario, edit := range map[string][2]string{
		"tags":          {`!tag_is_valid(tag)`, `(tag_is_valid(tag), 0)`},
		"replies":       {`sorted[i - 1].last >= sorted[i].first ? 0 : count`, `count`},
		"errors":        {`code == 429 ? "Throttled"`, `code == 429 ? "Unavailable"`},
		"ids":           {`"{\"id\":\"%" PRId64 "\"}", runs`, `"{\"id\":\"%.0f\"}", (double)runs`},
		"no-responders": {`s == NATS_NO_RESPONDERS ? "NotServed"`, `s == NATS_NO_RESPONDERS ? "Other"`},
		"deadline":      {`number(params, "timeoutMs", standard)`, `5000`},
		"disconnect":    {`natsConnection_Close(nc), `, ``},
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			program := buildC(t, func(path string) ([]byte, error) {
				source, err := os.ReadFile(path)
				if n := strings.Count(string(source), edit[0]); n != 1 {
					t.Fatalf("%q is there %d times", edit[0], n)
				}
				return []byte(strings.Replace(string(source), edit[0], edit[1], 1)), err
			})
			w := world(t, adapter.Command{Args: []string{program}})
			i := slices.IndexFunc(scenarios.All, func(sc scenarios.Scenario) bool { return sc.Name == scenario })
			err := w.Play(scenarios.All[i], "wire", "mutant-"+scenario)
			if err == nil {
				t.Error("the scenario does not find it")
			}
			t.Logf("found: %v", err)
		})
	}
}
