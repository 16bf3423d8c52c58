// Package scenarios plays a client through what happens to it in production, and judges what it does by the laws of
// docs/client-laws.md: each scenario by one law.
//
// A scenario judges only what is certain on a busy machine. It is certain that a request was sent before it arrived at
// the desk, and that a call began after its line was written and ended before its response was read.
package scenarios

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/adapter"
	"github.com/natsid/natsid/proof/conformance/internal/contract"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

// A Scenario is one scene, which checks one law.
type Scenario struct {
	Name string
	Law  string // a heading of docs/client-laws.md
	Says string // what the client does, as a sentence
	Wire bool   // also for profile wire
	Play func(*Stage)
}

// A World is what all scenarios share.
type World struct {
	Contract *contract.Contract
	Vectors  fs.FS
	Command  adapter.Command
	Profile  string // "" is what the adapter says
	NATS     string // URL of a nats-server
	// Natsid returns the namespace of a worker there, which it starts at the first call.
	Natsid func() (string, error)
}

// A Stage is where one scenario plays: an adapter, and a namespace of its own with a desk.
type Stage struct {
	*World
	*adapter.Adapter
	Profile string
	NS      string
	Desk    *rig.Desk
}

// A verdict ends a scenario.
type verdict struct{ says string }

// object is JSON.
type object = map[string]any

// Targets.
var (
	order     = tag("order")
	snowflake = object{"snowflake": true}
)

func tag(name string) object { return object{"tag": name} }

// with returns a target with a further option.
func with(target object, name string, value any) object {
	all := object{name: value}
	for k, v := range target {
		all[k] = v
	}
	return all
}

func prefetch(target object, n int, age time.Duration) object {
	return with(target, "prefetch", object{"n": n, "maxAgeMs": age.Milliseconds()})
}

const (
	// slack is what a busy machine may add to a time.
	slack = 10 * time.Second
	// long is a limit of calls that are to succeed.
	long = 20 * time.Second
	// short is a limit of calls that are to end with an error long before.
	short = 6 * time.Second
)

// fail ends the scenario.
func (s *Stage) fail(format string, args ...any) { panic(verdict{fmt.Sprintf(format, args...)}) }

// want ends the scenario unless ok.
func (s *Stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// check ends the scenario after an error of the rig or a fault of the adapter.
func (s *Stage) check(err error) {
	if err != nil {
		s.fail("%v", err)
	}
}

func (s *Stage) isFull() bool { return s.Profile == contract.Full }

// An Outcome is the end of a call.
type outcome struct {
	method       string
	ids          []subjects.ID // of next and burst, in any order
	runs         [][2]subjects.ID
	kinds        map[string]int // of burst
	kind, reason string         // "" after success
	failure      *adapter.Failure
	began, ended time.Time
	raw          json.RawMessage
}

// String returns the outcome as the text of a scenario names it.
func (o outcome) String() string {
	if o.failure != nil {
		return fmt.Sprintf("%s ended with %v", o.method, o.failure)
	}
	return fmt.Sprintf("%s returned %.200s", o.method, o.raw)
}

// id returns the only ID.
func (o outcome) id() subjects.ID { return o.ids[0] }

func (o outcome) took() time.Duration { return o.ended.Sub(o.began) }

// A pending is a call under way.
type pending struct {
	stage  *Stage
	call   *adapter.Call
	method string
	limit  time.Duration
}

// begin begins a call, which hangs if it has not ended slack after its limit.
func (s *Stage) begin(method string, params object, limit time.Duration) pending {
	return pending{s, s.Begin(method, params), method, limit}
}

// end returns the outcome of a call when it has ended. A fault of the adapter ends the scenario.
func (p pending) end() (o outcome) {
	raw, err := p.call.Wait(p.limit + slack)
	o = outcome{method: p.method, raw: raw, began: p.call.Began, ended: p.call.Ended}
	if failure, ok := err.(*adapter.Failure); ok {
		o.failure, o.kind, o.reason = failure, failure.Data.Kind, failure.Data.Reason
		return o
	}
	p.stage.check(err)
	switch p.method {
	case "next", "nextN", "burst":
		p.stage.read(&o)
	}
	return o
}

// read reads the IDs of a result, which the contract has allowed.
func (s *Stage) read(o *outcome) {
	var result struct {
		ID    string
		IDs   []string
		Runs  [][2]string
		Kinds map[string]int
	}
	s.check(json.Unmarshal(o.raw, &result))
	if result.ID != "" {
		result.IDs = append(result.IDs, result.ID)
	}
	for _, text := range result.IDs {
		o.ids = append(o.ids, number(text))
	}
	for _, run := range result.Runs {
		o.runs = append(o.runs, [2]subjects.ID{number(run[0]), number(run[1])})
	}
	o.kinds = result.Kinds
}

// number returns an ID that the contract has allowed.
func number(text string) subjects.ID {
	n, _ := subjects.ParseID(text)
	return n
}

// done reports whether the call has ended.
func (p pending) done() bool {
	select {
	case <-p.call.Done():
		return true
	default:
		return false
	}
}

// call calls a method that does not wait.
func (s *Stage) call(method string, params object) outcome {
	o := s.begin(method, params, 0).end()
	s.want(o.failure == nil, "%v", o)
	return o
}

// connect connects to the namespace of the scenario. More parameters replace those.
func (s *Stage) connect(more object) {
	params := object{"servers": []string{s.NATS}, "namespace": s.NS}
	for k, v := range more {
		params[k] = v
	}
	s.call("connect", params)
}

func (s *Stage) beginNext(target object, limit time.Duration) pending {
	return s.begin("next", object{"target": target, "timeoutMs": limit.Milliseconds()}, limit)
}

func (s *Stage) beginN(target object, n any, limit time.Duration) pending {
	return s.begin("nextN", object{"target": target, "n": n, "timeoutMs": limit.Milliseconds()}, limit)
}

func (s *Stage) beginBurst(target object, calls int, limit time.Duration) pending {
	return s.begin("burst", object{"target": target, "calls": calls, "timeoutMs": limit.Milliseconds()}, limit)
}

func (s *Stage) next(target object, limit time.Duration) outcome {
	return s.beginNext(target, limit).end()
}

func (s *Stage) nextN(target object, n any, limit time.Duration) outcome {
	return s.beginN(target, n, limit).end()
}

// mustNext returns the ID of a call that has to succeed.
func (s *Stage) mustNext(target object) subjects.ID {
	o := s.persist(func() outcome { return s.next(target, long) })
	s.want(o.failure == nil, "%v", o)
	return o.id()
}

// persist makes a call, and in the place of a language without a client asks again where a busy worker refuses.
func (s *Stage) persist(call func() outcome) outcome {
	for end := time.Now().Add(long); ; time.Sleep(100 * time.Millisecond) {
		o := call()
		if s.isFull() || o.kind != "Unavailable" || time.Now().After(end) {
			return o
		}
	}
}

// until waits for a condition, which a request may bring about.
func (s *Stage) until(what string, is func() bool) {
	for end := time.After(slack); !is(); {
		select {
		case <-s.Desk.News():
		case <-time.After(5 * time.Millisecond):
		case <-end:
			s.fail("after %v it is not so that %s", slack, what)
		}
	}
}

// sent returns the requests for a tag that have arrived. A scene uses a tag of its own where a copy that comes late
// must not be taken for one of the next scene.
func (s *Stage) sent(name string) []*rig.Request { return s.Desk.Of("segment." + name) }

// arrived waits until n requests for a tag have arrived, and returns the n-th.
func (s *Stage) arrived(name string, n int) *rig.Request {
	s.until(fmt.Sprintf("%d requests for %s have arrived", n, name), func() bool { return len(s.sent(name)) >= n })
	return s.sent(name)[n-1]
}

// eventually plays a scene a few times, until it shows what a client that keeps the law shows unless the machine is
// too busy, and what another client never shows. scene returns "", or what it saw instead.
func (s *Stage) eventually(scene func(name string) string) {
	saw := ""
	for i := range 5 {
		if saw = scene(fmt.Sprint("t", i)); saw == "" {
			return
		}
	}
	s.fail("%s", saw)
}

// A counts is the result of the method stats.
type counts struct {
	IDs, Requests, Hedges, Retries, Failures, Held int64
}

func (s *Stage) stats(target object) (c counts) {
	s.check(json.Unmarshal(s.call("stats", object{"target": target}).raw, &c))
	return c
}

// distinct ends the scenario if an ID was given twice, or is from no answer.
func (s *Stage) distinct(ids ...subjects.ID) {
	seen := map[subjects.ID]bool{}
	for _, id := range ids {
		s.want(!seen[id], "ID %d was given twice", id)
		s.want(s.Desk.Origin(id) != nil, "ID %d was given, and the desk never issued it", id)
		seen[id] = true
	}
}
