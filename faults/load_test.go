//go:build linux

package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// play lets a load of 400 requests a second ask a worker that answers the i-th
// request with what answer returns, nil for silence, and judges it.
func play(t *testing.T, f fault, answer func(i int64, m *nats.Msg) *nats.Msg) (*scene, result) {
	t.Helper()
	url := natstest.Start(t)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
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
	s := &scene{ctx: t.Context()}
	if s.load, err = newLoad(t.TempDir(), []string{url}); err != nil {
		t.Fatal(err)
	}
	defer s.load.disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	s.load.begin()
	s.load.run(ctx, 400, 100)
	r := s.figures()
	s.judge(f, r)
	return s, r
}

// ids answers the i-th request with IDs that no other has.
func ids(i int64, m *nats.Msg) *nats.Msg {
	first, n := (i+1)*1000, int64(1)
	if len(m.Data) > 0 {
		n = 100
	}
	return &nats.Msg{Data: subjects.AppendRun(nil, first, first+n-1)}
}

func TestALoadThatGetsItsIDsFindsNothingWrong(t *testing.T) {
	t.Parallel()
	s, r := play(t, fault{}, ids)
	// Two in ten are for a batch of 100.
	if want := r.requests * (8 + 2*100) / 10; len(s.trouble) > 0 || r.requests < 150 || r.ids < want-200 || r.ids > want+200 {
		t.Errorf("%d IDs of %d requests, %q", r.ids, r.requests, s.trouble)
	}
}

func TestAnIDThatComesTwiceFailsTheScene(t *testing.T) {
	t.Parallel()
	var ofLong int64
	s, r := play(t, fault{}, func(i int64, m *nats.Msg) *nats.Msg {
		if m.Subject != subjectOf(long) || len(m.Data) > 0 {
			return ids(i, m)
		}
		if ofLong++; ofLong == 1 || ofLong == 20 {
			i = 1_000_000
		}
		return ids(i, m)
	})
	if r.repeats != 1 || len(s.trouble) != 2 {
		t.Errorf("%d repeats, %q", r.repeats, s.trouble)
	}
}

func TestSilenceAndRefusalsAreCountedAndFailTheSceneUnlessTolerated(t *testing.T) {
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
	for what, answer := range map[string]*nats.Msg{silent: nil, "503": refusal} {
		f := fault{back: time.Minute}
		s, r := play(t, f, every(10, answer))
		if got, want := r.failures[what], r.requests/10; got < want || got > want+1 || len(s.trouble) == 0 {
			t.Errorf("%d %s of %d, %q", got, what, r.requests, s.trouble)
		}
		f.may = []tolerance{{kinds: all, what: []string{what}, end: time.Minute}}
		if s, _ := play(t, f, every(10, answer)); len(s.trouble) > 0 {
			t.Errorf("%s is tolerated: %q", what, s.trouble)
		}
	}
}

func TestAnAnswerThatIsNotNatsidsFailsTheScene(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"no run": `{"stream":"s","seq":1}`, "too few": "1-3", "nothing": ""} {
		s, _ := play(t, fault{}, func(i int64, m *nats.Msg) *nats.Msg {
			if len(m.Data) > 0 {
				return &nats.Msg{Data: []byte(body)}
			}
			return ids(i, m)
		})
		if len(s.trouble) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestAFailureIsToleratedOnlyWhereTheFaultMayCostIt(t *testing.T) {
	const from, till = 10 * time.Second, 20 * time.Second
	for _, tc := range []struct {
		law  string
		may  tolerance
		f    failure
		want bool
	}{
		{"another kind", tolerance{kinds: []kind{short}, what: []string{"503"}}, failure{long, "503", 15 * time.Second}, false},
		{"another outcome", tolerance{kinds: all, what: []string{"503"}}, failure{long, silent, 15 * time.Second}, false},
		{"before the fault", tolerance{kinds: all, what: []string{silent}}, failure{long, silent, 7 * time.Second}, false},
		{"under way when it began", tolerance{kinds: all, what: []string{silent}}, failure{long, silent, 9 * time.Second}, true},
		{"while it lasts", tolerance{kinds: all, what: []string{silent}}, failure{long, silent, 19 * time.Second}, true},
		{"after it", tolerance{kinds: all, what: []string{silent}}, failure{long, silent, 21 * time.Second}, false},
		{"within the time to recover", tolerance{kinds: all, what: []string{silent}, end: 2 * time.Second}, failure{long, silent, 21 * time.Second}, true},
		{"after what its beginning may cost", tolerance{kinds: all, what: []string{silent}, begin: time.Second}, failure{long, silent, 12 * time.Second}, false},
	} {
		if got := tc.may.covers(tc.f, from, till); got != tc.want {
			t.Errorf("%s: tolerated %v, want %v", tc.law, got, tc.want)
		}
	}
	s := scene{load: &load{failures: []failure{{long, silent, 15 * time.Second}, {long, silent, 16 * time.Second}}}, from: from, till: till}
	s.judgeFailures(fault{may: []tolerance{{kinds: all, what: []string{silent}, most: 1}}})
	if len(s.trouble) != 1 {
		t.Errorf("two where one is tolerated: %q", s.trouble)
	}
}

func TestNothingIsToleratedInTheLastSecond(t *testing.T) {
	for at, want := range map[time.Duration]int{28 * time.Second: 0, 29500 * time.Millisecond: 1} {
		s := scene{load: &load{failures: []failure{{short, "503", at}}, quit: 30 * time.Second}, till: 20 * time.Second}
		s.judgeLastSecond()
		if len(s.trouble) != want {
			t.Errorf("a failure at %v: %q", at, s.trouble)
		}
	}
}

func TestAProcessThatEndsByItselfFailsTheSceneOnce(t *testing.T) {
	start := func(command string) *process {
		p, err := startProcess(t.TempDir()+"/log", "w", nil, "sh", "-c", command)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.kill)
		return p
	}
	runs, killed, stopped, dead := start("exec sleep 60"), start("exec sleep 60"), start("exec sleep 60"), start("exit 3")
	killed.kill()
	if err := stopped.stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-dead.ended
	s := scene{load: new(load), servers: []*server{{process: runs}, {process: killed}}, workers: []*worker{{process: stopped}, {process: dead}, {}}}
	s.judgeProcesses()
	s.judgeProcesses()
	if len(s.trouble) != 1 {
		t.Errorf("%q, want the one that ended by itself", s.trouble)
	}
}

func TestEveryFaultHasANameOfItsOwnAndCanBePlayed(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range catalogue() {
		if seen[f.name] || f.does == "" || f.inject == nil && !f.random {
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

// The wall clock of natsid is set through its build: a Go release that tells the
// time in another way must be noticed.
func TestTheClockOfThisGoCanBeSet(t *testing.T) {
	t.Parallel()
	if _, err := writeOverlay(t.Context(), t.TempDir()); err != nil {
		t.Error(err)
	}
}
