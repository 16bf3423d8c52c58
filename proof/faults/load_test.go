//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/process"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// play runs a load of 400 bare requests per second on a worker that answers with the
// result of answer, and judges the load.
func play(t *testing.T, f fault, answer func(i int64, m *nats.Msg) *nats.Msg) (*trial, result) {
	t.Helper()
	s := answered(t, f, answer)
	return s, playOn(t, s, func() bool { return true })
}

// playOn runs the load of a trial for 200 requests, and until it is enough, and judges it.
func playOn(t *testing.T, s *trial, enough func() bool) result {
	s.load.begin()
	ctx, stop := context.WithCancel(t.Context())
	go func() { // the rate holds for as long as the machine keeps up: so many are enough
		defer stop()
		for (sentBy(s.load) < 200 || !enough()) && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	s.load.run(ctx, 400, 100)
	r := s.figures()
	s.judge(r)
	return r
}

// answered returns a trial whose callers are connected to a worker that answers the
// i-th request with the result of answer, nil for none.
func answered(t *testing.T, f fault, answer func(i int64, m *nats.Msg) *nats.Msg) *trial {
	t.Helper()
	url := natstest.Start(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var i int64
	if _, err := nc.Subscribe(string(namespace)+".>", func(m *nats.Msg) {
		if a := answer(i, m); a != nil {
			a.Subject = m.Reply
			_ = nc.PublishMsg(a)
		}
		i++
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s := newTrial(t, f)
	if s.load, err = newLoad(t.TempDir(), []string{url}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.load.disconnect)
	if s.callers, err = newCallers(s.load, []string{url}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.callers.close)
	return s
}

// newTrial returns a trial that runs nothing.
func newTrial(t *testing.T, f fault) *trial {
	c := &cluster{harness: newHarness(t.Context(), f.name, t.TempDir()), load: &load{}, callers: &callers{}}
	return &trial{cluster: c, fault: f}
}

func sentBy(l *load) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sent := range l.sent {
		n += sent
	}
	return n
}

// unbounded is a fault that may take its time on a busy machine.
var unbounded = fault{gap: time.Minute, recovery: time.Minute}

// ids answers the i-th request with IDs that no other has.
func ids(i int64, m *nats.Msg) *nats.Msg {
	first, n := subjects.ID(i+1)*1000, subjects.ID(1)
	if len(m.Data) > 0 {
		n = 100
	}
	return &nats.Msg{Data: subjects.AppendRun(nil, first, first+n-1)}
}

func TestALoadThatGetsItsIDsFindsNothingWrong(t *testing.T) {
	t.Parallel()
	s, r := play(t, unbounded, ids)
	// Two in ten are for a batch of 100.
	want := r.requests * (8 + 2*100) / 10
	if len(s.violations) > 0 || r.requests < 150 || r.ids < want-200 || r.ids > want+200 {
		t.Errorf("%d IDs of %d requests, %q", r.ids, r.requests, s.violations)
	}
}

func TestAnIDThatIsIssuedTwiceFailsTheTrial(t *testing.T) {
	t.Parallel()
	var ofLong int64
	s, r := play(t, unbounded, func(i int64, m *nats.Msg) *nats.Msg {
		if m.Subject != long.subject() || len(m.Data) > 0 {
			return ids(i, m)
		}
		if ofLong++; ofLong == 1 || ofLong == 20 {
			i = 1_000_000
		}
		return ids(i, m)
	})
	if r.repeats != 1 || len(s.violations) != 2 {
		t.Errorf("%d repeats, %q", r.repeats, s.violations)
	}
}

// Both judges see it: the ledger, and porcupine.
func TestAStrictIDThatComesTooLateFailsTheTrial(t *testing.T) {
	t.Parallel()
	var s *trial
	var sent uint64 // requests up to this one may have been sent before there was an answer
	var isLate atomic.Bool
	s = answered(t, unbounded, func(i int64, m *nats.Msg) *nats.Msg {
		s.load.mu.Lock()
		defer s.load.mu.Unlock()
		if sent == 0 && s.load.lastOK[strict].After(s.load.start) {
			sent = s.load.seq
		}
		seq, _ := strconv.ParseUint(m.Reply[strings.LastIndexByte(m.Reply, '.')+1:], 10, 64)
		if m.Subject == strict.subject() && sent > 0 && seq > sent && isLate.CompareAndSwap(false, true) {
			i = 0
		}
		return ids(i, m)
	})
	r := playOn(t, s, isLate.Load)
	if r.repeats != 0 || r.order.answers < 30 || r.order.inversions != 1 || len(s.violations) != 2 {
		t.Errorf("%v, %d repeats, %q", r.order, r.repeats, s.violations)
	}
}

// Whatever is sent then must get more.
func TestAnAnswerThatIsTooLateForItsCallerIsJudged(t *testing.T) {
	l, err := newLoad(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.begin()
	send := func() (answer func(id string)) {
		seq := l.register(request{kind: strict, n: 1, link: new(link)})
		return func(id string) {
			l.answered(&nats.Msg{Subject: fmt.Sprintf("inbox.%d.%d", strict, seq), Data: []byte(id)})
		}
	}
	late, soon := send(), send()
	soon("5")
	l.expire(l.start.Add(2 * callerWaits))
	late("3") // it was sent before 5 had come
	lateAgain := send()
	l.expire(l.start.Add(4 * callerWaits))
	lateAgain("4")
	if v := l.rising.verdict(); l.err() != nil || v.answers != 3 || v.inversions != 1 {
		t.Errorf("%v, %q, %v", v, v.faults, l.err())
	}
}

func TestTimeoutsAndRefusalsAreCountedAndFailTheTrialUnlessALossAllowsThem(t *testing.T) {
	t.Parallel()
	every := func(n int64, a *nats.Msg) func(int64, *nats.Msg) *nats.Msg {
		return func(i int64, m *nats.Msg) *nats.Msg {
			if i%n == 0 {
				return a
			}
			return ids(i, m)
		}
	}
	refusal := &nats.Msg{Header: nats.Header{subjects.HeaderErrorCode: {"503"}}}
	for what, answer := range map[string]*nats.Msg{timeout: nil, "503": refusal} {
		f := unbounded
		s, r := play(t, f, every(10, answer))
		if got, want := r.failures[what], r.requests/10; got < want || got > want+1 || len(s.violations) == 0 {
			t.Errorf("%d %s of %d, %q", got, what, r.requests, s.violations)
		}
		f.losses = []loss{{kinds: all, outcomes: []string{what}, afterEnd: time.Minute}}
		if s, _ := play(t, f, every(10, answer)); len(s.violations) > 0 {
			t.Errorf("%s is allowed: %q", what, s.violations)
		}
	}
}

func TestAnAnswerThatIsNotNatsidsFailsTheTrial(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"no run": `{"stream":"s","seq":1}`, "too few": "1-3", "nothing": ""} {
		s, _ := play(t, fault{}, func(i int64, m *nats.Msg) *nats.Msg {
			if len(m.Data) > 0 {
				return &nats.Msg{Data: []byte(body)}
			}
			return ids(i, m)
		})
		if len(s.violations) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestALossAllowsAFailureOnlyWhereTheFaultMayCostIt(t *testing.T) {
	const from, till = 10 * time.Second, 20 * time.Second
	refused, unanswered := []string{"503"}, []string{timeout}
	for _, tc := range []struct {
		law  string
		loss loss
		f    failure
		want bool
	}{
		{"another kind", loss{kinds: []kind{short}, outcomes: refused},
			failure{long, "503", 15 * time.Second}, false},
		{"another outcome", loss{kinds: all, outcomes: refused}, failure{long, timeout, 15 * time.Second}, false},
		{"before the fault", loss{kinds: all, outcomes: unanswered}, failure{long, timeout, 7 * time.Second}, false},
		{"in flight when it began", loss{kinds: all, outcomes: unanswered},
			failure{long, timeout, 9 * time.Second}, true},
		{"while it lasts", loss{kinds: all, outcomes: unanswered}, failure{long, timeout, 19 * time.Second}, true},
		{"after it", loss{kinds: all, outcomes: unanswered}, failure{long, timeout, 21 * time.Second}, false},
		{"within the time after its end", loss{kinds: all, outcomes: unanswered, afterEnd: 2 * time.Second},
			failure{long, timeout, 21 * time.Second}, true},
		{"after the time from its start", loss{kinds: all, outcomes: unanswered, afterStart: time.Second},
			failure{long, timeout, 12 * time.Second}, false},
	} {
		if got := tc.loss.allows(&trial{from: from, till: till}, tc.f); got != tc.want {
			t.Errorf("%s: allowed %v, want %v", tc.law, got, tc.want)
		}
	}
	s := newTrial(t, fault{losses: []loss{{kinds: all, outcomes: unanswered, most: 1}}})
	s.load = &load{failures: []failure{{long, timeout, 15 * time.Second}, {long, timeout, 16 * time.Second}}}
	s.from, s.till = from, till
	s.judgeFailures()
	if len(s.violations) != 1 {
		t.Errorf("two where one is allowed: %q", s.violations)
	}
}

func TestALossWithACauseIsAllowedWhileThatLasts(t *testing.T) {
	s := newTrial(t, fault{})
	s.load = &load{start: time.Now(), alarms: make(map[string]wire.AlarmEvent)}
	s.from, s.till = 10*time.Second, 11*time.Second
	s.load.alarms["w1"] = wire.AlarmEvent{Kind: wire.AlarmNumberLost, Time: s.load.start.Add(time.Minute)}
	for _, tc := range []struct {
		law  string
		loss loss
		f    failure
		want bool
	}{
		{"in flight when the number was lost", untilRenumbered, failure{snowflake, "503", 59 * time.Second}, true},
		{"until there is another", untilRenumbered, failure{snowflake, noResponders, 64 * time.Second}, true},
		{"and no longer", untilRenumbered, failure{snowflake, "503", 66 * time.Second}, false},
		{"without a lost number", untilRenumbered, failure{snowflake, "503", 11 * time.Second}, false},
		{"of what needs none", untilRenumbered, failure{long, "503", time.Minute}, false},
	} {
		if got := tc.loss.allows(s, tc.f); got != tc.want {
			t.Errorf("%s: allowed %v, want %v", tc.law, got, tc.want)
		}
	}
}

func TestAnAlarmIsExpectedOnlyWhereTheTrialMetItsCause(t *testing.T) {
	r := result{alarms: map[wire.Alarm]int{wire.AlarmMarksLost: 2}}
	for most, want := range map[int]int{0: 1, 1: 1, 2: 0, 3: 0} {
		s := newTrial(t, fault{alarms: alarms{wire.AlarmMarksWentBack: {0, 9}}})
		s.explained = map[wire.Alarm]int{wire.AlarmMarksLost: most}
		if s.judgeAlarms(r); len(s.violations) != want {
			t.Errorf("two where %d are explained: %q", most, s.violations)
		}
	}
}

func TestNoLossIsAllowedInTheLastSecond(t *testing.T) {
	for at, want := range map[time.Duration]int{28 * time.Second: 0, 29500 * time.Millisecond: 1} {
		s := newTrial(t, fault{})
		s.load = &load{failures: []failure{{short, "503", at}}, quit: 30 * time.Second}
		s.till = 20 * time.Second
		s.judgeLastSecond()
		if len(s.violations) != want {
			t.Errorf("a failure at %v: %q", at, s.violations)
		}
	}
}

func TestAProcessThatEndsByItselfFailsTheTrialOnce(t *testing.T) {
	start := func(command string) *process.Process {
		p, err := process.Start(t.TempDir()+"/log", "w", nil, "sh", "-c", command)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	runs, killed, stopped := start("exec sleep 60"), start("exec sleep 60"), start("exec sleep 60")
	dead := start("exit 3")
	killed.Kill()
	if err := stopped.Stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-dead.Ended
	s := newTrial(t, fault{})
	s.servers = []*server{{Process: runs}, {Process: killed}}
	s.workers = []*worker{{Process: stopped}, {Process: dead}, {}}
	s.checkProcesses()
	s.checkProcesses()
	if len(s.violations) != 1 {
		t.Errorf("%q, want the one that ended by itself", s.violations)
	}
}

func TestEveryFaultHasANameOfItsOwnAndCanBeInjected(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range catalogue() {
		if seen[f.name] || f.summary == "" || f.inject == nil && !f.random {
			t.Errorf("%+v", f)
		}
		seen[f.name] = true
	}
	if _, err := choose([]string{"no-such-fault"}, options{}); err == nil {
		t.Error("a name that does not exist is taken")
	}
	got, err := choose([]string{"mysql-*", "worker-kill"}, options{})
	if err != nil || len(got) != 7 || got[0].name != "worker-kill" {
		t.Errorf("%d faults, %v", len(got), err)
	}
}

// The wall clock of natsid is set through a change of package time: a Go release
// that the change does not fit must be noticed.
func TestTheClockOfThisGoCanBeSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := buildSettable(t.Context(), dir, "holder", filepath.Join(dir, "holder")); err != nil {
		t.Error(err)
	}
}
