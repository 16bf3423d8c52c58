package e2e_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/subjects"
)

const (
	brief   = 150 * time.Millisecond // for which tests watch that nothing comes
	patient = time.Minute            // within which what must come has come
)

// ask sends a bare request, and returns the body of the reply and the error in it.
func ask(
	t *testing.T, ids *e2e.Cluster, subject, body string, within time.Duration,
) (reply string, refused *subjects.Error, err error) {
	t.Helper()
	m, err := ids.Conn.Request(subject, []byte(body), within)
	if err != nil {
		return "", nil, err
	}
	return string(m.Data), subjects.ParseError(m.Header), nil
}

// order sends an order, and fails unless the reply is ok.
func order(t *testing.T, ids *e2e.Cluster, words string) {
	t.Helper()
	if body, refused, err := ask(t, ids, "natsid.test", words, patient); body != "ok" || refused != nil || err != nil {
		t.Fatalf("%s: the reply is %q, %v, %v; want ok", words, body, refused, err)
	}
}

// next draws an ID with package client, and fails unless there is one.
func next(t *testing.T, ids *e2e.Cluster) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	id, err := ids.Segment("invoice").Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return int64(id)
}

// modes are subjects of requests for IDs, each in its own way.
var modes = []string{"id.segment.invoice", "id.snowflake", "id.snowflake.0"}

func TestAStalledRequestWaitsAndIsAnswered(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	next(t, ids)
	for _, begin := range []func(){func() { ids.Stall(0) }, func() { order(t, ids, "stall") }} {
		begin()
		replies := make(chan *nats.Msg, len(modes))
		for _, subject := range modes {
			sub, err := ids.Conn.ChanSubscribe(nats.NewInbox(), replies)
			if err == nil {
				err = ids.Conn.PublishRequest(subject, sub.Subject, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// Requests about tags are no requests for IDs.
		if _, refused, err := ask(t, ids, "id.tag.list", "", patient); refused != nil || err != nil {
			t.Errorf("a list of tags during a stall: %v, %v", refused, err)
		}
		select {
		case m := <-replies:
			t.Errorf("%q is answered during a stall", m.Data)
		case <-time.After(brief):
		}
		ids.Resume()
		for range modes {
			select {
			case m := <-replies:
				if subjects.ParseError(m.Header) != nil || len(m.Data) == 0 {
					t.Errorf("after a stall: %q, %v", m.Data, m.Header)
				}
			case <-time.After(patient):
				t.Fatal("a request that waited is not answered after the stall")
			}
		}
	}
}

func TestAStallEndsByItselfAndCostsAClientTimeAlone(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	first := next(t, ids)
	for _, begin := range []func(){
		func() { ids.Stall(brief) },
		func() { order(t, ids, "stall 150ms") },
		func() { order(t, ids, " stall  for 150ms ") },
	} {
		began := time.Now()
		begin()
		got := next(t, ids)
		if took := time.Since(began); got <= first || took < brief {
			t.Errorf("ID %d after %v; want one above %d, after the stall of %v", got, took, first, brief)
		}
		first = got
	}
}

// A later fault outlasts the time of an earlier one.
func TestTheTimeOfAFaultEndsThatFaultAlone(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	next(t, ids)
	ids.Stall(brief)
	ids.Refuse(503, 0)
	time.Sleep(2 * brief)
	if _, refused, err := ask(t, ids, modes[0], "", patient); refused == nil || refused.Code != 503 {
		t.Errorf("%v, %v; want 503 until it is ended", refused, err)
	}
	ids.Resume()
	next(t, ids)
}

func TestARefusalHasItsCodeUntilItEnds(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	next(t, ids)
	for _, info := range subjects.Codes() {
		order(t, ids, "refuse "+info.Code.String())
		for _, subject := range modes {
			body, refused, err := ask(t, ids, subject, "", patient)
			if err != nil || body != "" || refused == nil || refused.Code != info.Code ||
				(refused.RetryAfter > 0) != (info.Code == subjects.TooMany) {
				t.Errorf("%s: %q, %+v, %v; want %d", subject, body, refused, err, info.Code)
			}
		}
	}
	ids.Refuse(subjects.NotFound, 0)
	if _, err := ids.Segment("invoice").Next(t.Context()); !errors.Is(err, client.ErrUnknownTag) {
		t.Errorf("the client returns %v, want %v", err, client.ErrUnknownTag)
	}
	began := time.Now()
	order(t, ids, "refuse 503 for 150ms")
	next(t, ids) // asks again
	if took := time.Since(began); took < brief {
		t.Errorf("an ID after %v, while all requests were refused", took)
	}
}

func TestDroppedRepliesCostTheirIDs(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	one := func() int64 { // a client might ask twice
		t.Helper()
		body, refused, err := ask(t, ids, modes[0], "", patient)
		id, malformed := strconv.ParseInt(body, 10, 64)
		if err != nil || refused != nil || malformed != nil {
			t.Fatalf("%q, %v, %v", body, refused, err)
		}
		return id
	}
	first := one()
	for _, begin := range []func(){
		func() { ids.DropReplies(0) }, func() { order(t, ids, "drop replies") },
	} {
		begin()
		for _, subject := range modes {
			if body, _, err := ask(t, ids, subject, "", brief); !errors.Is(err, nats.ErrTimeout) {
				t.Errorf("%s: %q, %v; want no reply", subject, body, err)
			}
		}
		m := nats.NewMsg(modes[0]) // a request with headers
		m.Header.Set("X-Request", "test")
		if reply, err := ids.Conn.RequestMsg(m, brief); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("with headers: %v, %v; want no reply", reply, err)
		}
		ids.Resume()
		got := one()
		if got != first+3 {
			t.Errorf("the ID after %d and two dropped replies is %d", first, got)
		}
		first = got
	}
	began := time.Now()
	order(t, ids, "drop replies for 150ms")
	if next(t, ids); time.Since(began) < brief {
		t.Errorf("a reply after %v, while all were dropped", time.Since(began))
	}
}

func TestARestartIsSeenAndKeepsItsPromises(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	first, number := next(t, ids), ids.WorkerNumber(0)
	for _, restart := range []func(){ids.Restart, func() { order(t, ids, "restart") }} {
		gone := make(chan bool)
		stop := make(chan struct{})
		go func() { // a caller that does not ask again
			seen := false
			for {
				select {
				case <-stop:
					gone <- seen
					return
				default:
					_, err := ids.Conn.Request("id.tag.list", nil, patient)
					seen = seen || errors.Is(err, nats.ErrNoResponders)
				}
			}
		}()
		restart()
		close(stop)
		if !<-gone {
			t.Error("a restart of the only worker was not seen")
		}
		if got := next(t, ids); got <= first {
			t.Errorf("the ID after %d and a restart is %d", first, got)
		} else {
			first = got
		}
		if got := ids.WorkerNumber(0); got != number {
			t.Errorf("worker number %d became %d", number, got)
		}
	}
	ids.StopWorker(0)
	ids.StopWorker(0) // does nothing
	ids.Restart()     // what does not run stays so
	if _, err := ids.Conn.Request(modes[0], nil, patient); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("%v after a restart of a stopped worker, want %v", err, nats.ErrNoResponders)
	}
	ids.StartWorker(0)
	if got := ids.WorkerNumber(0); got != number {
		t.Errorf("worker number %d became %d", number, got)
	}
}

func TestASkipRaisesTheNextIDOfEachTag(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	if _, refused, err := ask(t, ids, "natsid.test", "skip 5", patient); refused == nil || refused.Code != 404 {
		t.Errorf("a skip without a tag: %v, %v; want 404", refused, err)
	}
	next(t, ids)
	if _, _, err := ask(t, ids, "id.segment.order", "", patient); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(t, ids, "id.tag.delete", `{"tag":"order"}`, patient); err != nil {
		t.Fatal(err)
	}
	order(t, ids, "skip 1000000")
	if got := next(t, ids); got <= 1_000_000 {
		t.Errorf("the ID after a skip of a million is %d", got)
	}
	if _, _, err := ask(t, ids, "id.tag.create", `{"tag":"full","max":9}`, patient); err != nil {
		t.Fatal(err)
	}
	before := next(t, ids)
	_, refused, err := ask(t, ids, "natsid.test", "skip 1000", patient)
	if refused == nil || !strings.Contains(refused.Text, "tag full: ") || next(t, ids) < before+1000 {
		t.Errorf("a skip past a tag that ends: %v, %v; want an error, and all others raised", refused, err)
	}
	if _, _, err := ask(t, ids, "id.tag.delete", `{"tag":"full"}`, patient); err != nil {
		t.Fatal(err)
	}
	ids.Skip(1 << 53)
	if got := next(t, ids); got <= 1<<53 {
		t.Errorf("the ID after a skip of 2^53 is %d", got)
	}
	_, refused, err = ask(t, ids, "natsid.test", "skip 9223372036854775807", patient)
	if refused == nil || refused.Code != 400 || !strings.Contains(refused.Text, "the store holds at most") {
		t.Errorf("a skip above all IDs: %v, %v", refused, err)
	}
}

func TestAnOrderThatIsNoneIsRefusedInWords(t *testing.T) {
	t.Parallel()
	ids := e2e.Start(t, e2e.Config{})
	for order, text := range map[string]string{
		"repeat":               "natsid gives no ID twice",
		"":                     `no fault "": there is stall 2s, refuse 503 for 1s, drop replies for 1s, resume, `,
		"explode\xff":          `no fault "explode\xff"`,
		"drop":                 "there is stall 2s",
		"drop replies2s":       "there is stall 2s",
		"restart now":          "there is stall 2s",
		"stall soon":           `"soon" is no time`,
		"stall -2s":            `"-2s" is no time`,
		"refuse":               "there is stall 2s",
		"refuse for 1s":        `"for" is no code`,
		"refuse 418 for 1s":    "no code 418, but [400 404 409 410 429 500 503]",
		"refuse 503 for ever":  `"ever" is no time`,
		"drop replies for 0s":  `"0s" is no time`,
		"skip":                 "there is stall 2s",
		"skip -5":              `"-5" is no number`,
		"skip 1e6":             `"1e6" is no number`,
		"skip 100 for 1s":      `"100 for 1s" is no number`,
		"stall 2s for 3s":      "there is stall 2s",
		"refuse 503\n\tfor 1h": "",
	} {
		_, refused, err := ask(t, ids, "natsid.test", order, patient)
		switch {
		case err != nil:
			t.Errorf("%q: %v", order, err)
		case text == "" && refused != nil, text != "" && (refused == nil || refused.Code != 400 ||
			!strings.Contains(refused.Text, text)):
			t.Errorf("%q: %v, want 400 with %s", order, refused, text)
		}
	}
}
