//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// playCalls makes n calls through package client on a worker that answers the i-th
// request with the result of answer, and judges them.
func playCalls(t *testing.T, f fault, n int64, answer func(i int64, m *nats.Msg) *nats.Msg) (*trial, result) {
	t.Helper()
	s := answered(t, f, answer)
	s.load.begin()
	for i := range n {
		s.callers.call(i, 100)
	}
	r := s.figures()
	s.judge(r)
	return s, r
}

// sized answers the i-th request with as many IDs as it is for, which no other has.
func sized(i int64, m *nats.Msg) *nats.Msg {
	n := int64(1)
	if len(m.Data) > 0 {
		_, _ = fmt.Sscan(string(m.Data), &n)
	}
	return &nats.Msg{Data: subjects.AppendRun(nil, subjects.ID((i+1)*1000), subjects.ID((i+1)*1000+n-1))}
}

func TestIDsOfCallsThroughTheClientAreLookedAtForRepeats(t *testing.T) {
	t.Parallel()
	s, r := playCalls(t, unbounded, 20, sized)
	if len(s.violations) > 0 || r.calls != 20 || r.ids != 16+4*100 || r.longest == 0 {
		t.Errorf("%+v, %q", r, s.violations)
	}
	s, r = playCalls(t, unbounded, 20, func(i int64, m *nats.Msg) *nats.Msg { return sized(i/10, m) })
	if r.repeats == 0 || len(s.violations) == 0 {
		t.Errorf("%d repeats, %q", r.repeats, s.violations)
	}
}

// What a bare request gets, and a call through the client, is in one ledger.
func TestAnIDOfBothABareRequestAndACallFailsTheTrial(t *testing.T) {
	t.Parallel()
	s := answered(t, unbounded, func(_ int64, m *nats.Msg) *nats.Msg { return sized(7, m) })
	s.load.begin()
	s.callers.call(0, 100)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.load.send(0, 100)
	s.load.run(ctx, 400, 100)
	if r := s.figures(); r.repeats != 1 || r.ids != 2 {
		t.Errorf("%d repeats of %d IDs", r.repeats, r.ids)
	}
}

func TestAnErrorThatNoFaultExplainsFailsTheTrial(t *testing.T) {
	t.Parallel()
	refusal := &nats.Msg{Header: nats.Header{subjects.HeaderErrorCode: {"400"}, subjects.HeaderError: {"no"}}}
	f := unbounded
	f.losses = []loss{{kinds: all, outcomes: []string{"503"}, afterEnd: time.Minute}}
	for name, wrong := range map[string]*nats.Msg{"400": refusal, "foreign": {Data: []byte("{}")}} {
		s, _ := playCalls(t, f, 1, func(int64, *nats.Msg) *nats.Msg { return wrong })
		if s.load.err() == nil || !s.broken {
			t.Errorf("%s: %q", name, s.violations)
		}
	}
}

func TestACallMayFailOnlyWhereTheFaultSaysSo(t *testing.T) {
	const from, till = 10 * time.Second, 20 * time.Second
	storeGone := loss{kinds: []kind{short}, outcomes: []string{"503"}, afterEnd: time.Second}
	one := fault{losses: []loss{storeGone}, single: true}
	election := fault{losses: []loss{storeGone}, single: true, shortGap: patience + time.Second}
	many := fault{losses: []loss{storeGone}}
	for _, tc := range []struct {
		law  string
		f    fault
		of   kind
		at   time.Duration
		want bool
	}{
		{"one is struck", one, short, 15 * time.Second, false},
		{"its store is away for longer than patience", election, short, 15 * time.Second, true},
		{"not that of another kind", election, long, 15 * time.Second, false},
		{"all are struck", many, short, 15 * time.Second, true},
		{"not the other kind", many, snowflake, 15 * time.Second, false},
		{"a call that began a patience before", many, short, from - patience, true},
		{"or earlier", many, short, from - patience - 1, false},
		{"or later", many, short, till + time.Second + 1, false},
	} {
		if got := tc.f.mayFail(&trial{from: from, till: till}, failure{tc.of, timeout, tc.at}); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.law, got, tc.want)
		}
	}
}

func TestACallThatMayNotFailFailsTheTrial(t *testing.T) {
	f := fault{losses: []loss{{kinds: all, outcomes: []string{timeout}}}}
	for single, want := range map[bool]int{false: 0, true: 1} {
		f.single = single
		s := newTrial(t, f)
		s.from, s.till = 10*time.Second, 20*time.Second
		s.callers.failures = []failure{{long, timeout, 15 * time.Second}, {long, timeout, 16 * time.Second}}
		s.judgeCalls()
		if len(s.violations) != want || want > 0 && !strings.Contains(s.violations[0], "2 calls") {
			t.Errorf("single %v: %q", single, s.violations)
		}
	}
	s := newTrial(t, fault{})
	s.load.quit = 30 * time.Second
	s.callers.failures = []failure{{long, timeout, 29500 * time.Millisecond}}
	if s.judgeLastSecond(); len(s.violations) != 1 {
		t.Errorf("a call of the last second: %q", s.violations)
	}
}
